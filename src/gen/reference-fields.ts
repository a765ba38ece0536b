// Written by scripts/generate.ts from the Envoy API.
/* eslint-disable */

/** Fields with names of other resources: by message, NUMBER:TYPE, NUMBER:any or NUMBER:MESSAGE. */
export const referenceFields: string = `
envoy.config.accesslog.v3.AccessLog 2:envoy.config.accesslog.v3.AccessLogFilter 4:any
envoy.config.accesslog.v3.AccessLogFilter 6:envoy.config.accesslog.v3.AndFilter 7:envoy.config.accesslog.v3.OrFilter 11:envoy.config.accesslog.v3.ExtensionFilter
envoy.config.accesslog.v3.AndFilter 1:envoy.config.accesslog.v3.AccessLogFilter
envoy.config.accesslog.v3.ExtensionFilter 3:any
envoy.config.accesslog.v3.OrFilter 2:envoy.config.accesslog.v3.AccessLogFilter
envoy.config.cluster.v3.Cluster 43:envoy.config.cluster.v3.Cluster.TransportSocketMatch 59:xds.type.matcher.v3.Matcher 1:eds 38:envoy.config.cluster.v3.Cluster.CustomClusterType 3:envoy.config.cluster.v3.Cluster.EdsClusterConfig 33:envoy.config.endpoint.v3.ClusterLoadAssignment 8:envoy.config.core.v3.HealthCheck 13:envoy.config.core.v3.Http1ProtocolOptions 36:*any 55:envoy.config.core.v3.TypedExtensionConfig 19:envoy.config.cluster.v3.OutlierDetection 21:envoy.config.core.v3.BindConfig 24:envoy.config.core.v3.TransportSocket 25:envoy.config.core.v3.Metadata 40:envoy.config.cluster.v3.Filter 41:envoy.config.cluster.v3.LoadBalancingPolicy 42:envoy.config.core.v3.ConfigSource 48:envoy.config.core.v3.TypedExtensionConfig 62:envoy.config.cluster.v3.Cluster.QueuingPolicies
envoy.config.cluster.v3.Cluster.CustomClusterType 2:any
envoy.config.cluster.v3.Cluster.EdsClusterConfig 1:envoy.config.core.v3.ConfigSource 2:eds
envoy.config.cluster.v3.Cluster.QueuingPolicies 1:envoy.config.core.v3.TypedExtensionConfig
envoy.config.cluster.v3.Cluster.TransportSocketMatch 3:envoy.config.core.v3.TransportSocket
envoy.config.cluster.v3.ClusterCollection 1:xds.core.v3.CollectionEntry
envoy.config.cluster.v3.Filter 1:ecds 2:any 3:envoy.config.core.v3.ExtensionConfigSource
envoy.config.cluster.v3.LoadBalancingPolicy 1:envoy.config.cluster.v3.LoadBalancingPolicy.Policy
envoy.config.cluster.v3.LoadBalancingPolicy.Policy 4:envoy.config.core.v3.TypedExtensionConfig
envoy.config.cluster.v3.OutlierDetection 24:envoy.config.core.v3.TypedExtensionConfig
envoy.config.common.key_value.v3.KeyValueStoreConfig 1:envoy.config.core.v3.TypedExtensionConfig
envoy.config.common.matcher.v3.Matcher 1:envoy.config.common.matcher.v3.Matcher.MatcherList 2:envoy.config.common.matcher.v3.Matcher.MatcherTree 3:envoy.config.common.matcher.v3.Matcher.OnMatch
envoy.config.common.matcher.v3.Matcher.MatcherList 1:envoy.config.common.matcher.v3.Matcher.MatcherList.FieldMatcher
envoy.config.common.matcher.v3.Matcher.MatcherList.FieldMatcher 1:envoy.config.common.matcher.v3.Matcher.MatcherList.Predicate 2:envoy.config.common.matcher.v3.Matcher.OnMatch
envoy.config.common.matcher.v3.Matcher.MatcherList.Predicate 1:envoy.config.common.matcher.v3.Matcher.MatcherList.Predicate.SinglePredicate 2:envoy.config.common.matcher.v3.Matcher.MatcherList.Predicate.PredicateList 3:envoy.config.common.matcher.v3.Matcher.MatcherList.Predicate.PredicateList 4:envoy.config.common.matcher.v3.Matcher.MatcherList.Predicate
envoy.config.common.matcher.v3.Matcher.MatcherList.Predicate.PredicateList 1:envoy.config.common.matcher.v3.Matcher.MatcherList.Predicate
envoy.config.common.matcher.v3.Matcher.MatcherList.Predicate.SinglePredicate 1:envoy.config.core.v3.TypedExtensionConfig 3:envoy.config.core.v3.TypedExtensionConfig
envoy.config.common.matcher.v3.Matcher.MatcherTree 1:envoy.config.core.v3.TypedExtensionConfig 2:envoy.config.common.matcher.v3.Matcher.MatcherTree.MatchMap 3:envoy.config.common.matcher.v3.Matcher.MatcherTree.MatchMap 4:envoy.config.core.v3.TypedExtensionConfig
envoy.config.common.matcher.v3.Matcher.MatcherTree.MatchMap 1:*envoy.config.common.matcher.v3.Matcher.OnMatch
envoy.config.common.matcher.v3.Matcher.OnMatch 1:envoy.config.common.matcher.v3.Matcher 2:envoy.config.core.v3.TypedExtensionConfig
envoy.config.core.v3.AlternateProtocolsCacheOptions 3:envoy.config.core.v3.TypedExtensionConfig
envoy.config.core.v3.ApiConfigSource 2:cds 4:envoy.config.core.v3.GrpcService 9:envoy.config.core.v3.TypedExtensionConfig
envoy.config.core.v3.AsyncDataSource 2:envoy.config.core.v3.RemoteDataSource
envoy.config.core.v3.BindConfig 6:envoy.config.core.v3.TypedExtensionConfig
envoy.config.core.v3.ConfigSource 2:envoy.config.core.v3.ApiConfigSource
envoy.config.core.v3.EventServiceConfig 1:envoy.config.core.v3.GrpcService
envoy.config.core.v3.ExtensionConfigSource 1:envoy.config.core.v3.ConfigSource 2:any
envoy.config.core.v3.GrpcService 1:envoy.config.core.v3.GrpcService.EnvoyGrpc 2:envoy.config.core.v3.GrpcService.GoogleGrpc 6:envoy.config.core.v3.RetryPolicy
envoy.config.core.v3.GrpcService.EnvoyGrpc 1:cds 3:envoy.config.core.v3.RetryPolicy
envoy.config.core.v3.GrpcService.GoogleGrpc 9:any 3:envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials 10:any
envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials 6:envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials.MetadataCredentialsFromPlugin
envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials.MetadataCredentialsFromPlugin 3:any
envoy.config.core.v3.HealthCheck 9:envoy.config.core.v3.HealthCheck.TcpHealthCheck 13:envoy.config.core.v3.HealthCheck.CustomHealthCheck 25:envoy.config.core.v3.TypedExtensionConfig 22:envoy.config.core.v3.EventServiceConfig
envoy.config.core.v3.HealthCheck.CustomHealthCheck 3:any
envoy.config.core.v3.HealthCheck.TcpHealthCheck 3:envoy.config.core.v3.ProxyProtocolConfig
envoy.config.core.v3.Http1ProtocolOptions 4:envoy.config.core.v3.Http1ProtocolOptions.HeaderKeyFormat
envoy.config.core.v3.Http1ProtocolOptions.HeaderKeyFormat 8:envoy.config.core.v3.TypedExtensionConfig
envoy.config.core.v3.Http3ProtocolOptions 1:envoy.config.core.v3.QuicProtocolOptions
envoy.config.core.v3.HttpService 1:envoy.config.core.v3.HttpUri 3:envoy.config.core.v3.TypedExtensionConfig
envoy.config.core.v3.HttpUri 2:cds
envoy.config.core.v3.Metadata 2:*any
envoy.config.core.v3.PerHostConfig 1:envoy.config.core.v3.TlvEntry
envoy.config.core.v3.ProxyProtocolConfig 3:envoy.config.core.v3.TlvEntry
envoy.config.core.v3.QuicProtocolOptions 10:envoy.config.core.v3.TypedExtensionConfig
envoy.config.core.v3.RemoteDataSource 1:envoy.config.core.v3.HttpUri 3:envoy.config.core.v3.RetryPolicy
envoy.config.core.v3.RetryPolicy 4:envoy.config.core.v3.RetryPolicy.RetryPriority 5:envoy.config.core.v3.RetryPolicy.RetryHostPredicate
envoy.config.core.v3.RetryPolicy.RetryHostPredicate 2:any
envoy.config.core.v3.RetryPolicy.RetryPriority 2:any
envoy.config.core.v3.SubstitutionFormatString 6:envoy.config.core.v3.TypedExtensionConfig
envoy.config.core.v3.TlvEntry 3:envoy.config.core.v3.SubstitutionFormatString
envoy.config.core.v3.TransportSocket 3:any
envoy.config.core.v3.TypedExtensionConfig 2:any
envoy.config.endpoint.v3.ClusterLoadAssignment 2:envoy.config.endpoint.v3.LocalityLbEndpoints
envoy.config.endpoint.v3.ClusterStats 1:cds
envoy.config.endpoint.v3.LbEndpoint 3:envoy.config.core.v3.Metadata
envoy.config.endpoint.v3.LbEndpointCollection 1:xds.core.v3.CollectionEntry
envoy.config.endpoint.v3.LedsClusterLocalityConfig 1:envoy.config.core.v3.ConfigSource 2:leds
envoy.config.endpoint.v3.LocalityLbEndpoints 9:envoy.config.core.v3.Metadata 2:envoy.config.endpoint.v3.LbEndpoint 7:envoy.config.endpoint.v3.LocalityLbEndpoints.LbEndpointList 8:envoy.config.endpoint.v3.LedsClusterLocalityConfig
envoy.config.endpoint.v3.LocalityLbEndpoints.LbEndpointList 1:envoy.config.endpoint.v3.LbEndpoint
envoy.config.listener.v3.ApiListener 1:any
envoy.config.listener.v3.Filter 1:ecds 4:any 5:envoy.config.core.v3.ExtensionConfigSource
envoy.config.listener.v3.FilterChain 3:envoy.config.listener.v3.Filter 5:envoy.config.core.v3.Metadata 6:envoy.config.core.v3.TransportSocket
envoy.config.listener.v3.Listener 3:envoy.config.listener.v3.FilterChain 36:envoy.config.listener.v3.Listener.FcdsConfig 32:xds.type.matcher.v3.Matcher 25:envoy.config.listener.v3.FilterChain 6:envoy.config.core.v3.Metadata 9:envoy.config.listener.v3.ListenerFilter 18:envoy.config.listener.v3.UdpListenerConfig 19:envoy.config.listener.v3.ApiListener 20:envoy.config.listener.v3.Listener.ConnectionBalanceConfig 22:envoy.config.accesslog.v3.AccessLog
envoy.config.listener.v3.Listener.ConnectionBalanceConfig 2:envoy.config.core.v3.TypedExtensionConfig
envoy.config.listener.v3.Listener.FcdsConfig 2:envoy.config.core.v3.ConfigSource
envoy.config.listener.v3.ListenerCollection 1:xds.core.v3.CollectionEntry
envoy.config.listener.v3.ListenerFilter 1:ecds 3:any 5:envoy.config.core.v3.ExtensionConfigSource
envoy.config.listener.v3.QuicProtocolOptions 1:envoy.config.core.v3.QuicProtocolOptions 6:envoy.config.core.v3.TypedExtensionConfig 7:envoy.config.core.v3.TypedExtensionConfig 8:envoy.config.core.v3.TypedExtensionConfig 9:envoy.config.core.v3.TypedExtensionConfig 11:envoy.config.core.v3.TypedExtensionConfig
envoy.config.listener.v3.UdpListenerConfig 7:envoy.config.listener.v3.QuicProtocolOptions 8:envoy.config.core.v3.TypedExtensionConfig
envoy.config.metrics.v3.MetricsServiceConfig 1:envoy.config.core.v3.GrpcService
envoy.config.metrics.v3.StatsSink 3:any
envoy.config.metrics.v3.StatsdSink 2:cds
envoy.config.overload.v3.OverloadAction 3:any
envoy.config.overload.v3.OverloadManager 2:envoy.config.overload.v3.ResourceMonitor 3:envoy.config.overload.v3.OverloadAction
envoy.config.overload.v3.ResourceMonitor 3:any
envoy.config.ratelimit.v3.RateLimitServiceConfig 2:envoy.config.core.v3.GrpcService
envoy.config.rbac.v3.Permission 1:envoy.config.rbac.v3.Permission.Set 2:envoy.config.rbac.v3.Permission.Set 8:envoy.config.rbac.v3.Permission 12:envoy.config.core.v3.TypedExtensionConfig 13:envoy.config.core.v3.TypedExtensionConfig
envoy.config.rbac.v3.Permission.Set 1:envoy.config.rbac.v3.Permission
envoy.config.rbac.v3.Policy 1:envoy.config.rbac.v3.Permission 2:envoy.config.rbac.v3.Principal
envoy.config.rbac.v3.Principal 1:envoy.config.rbac.v3.Principal.Set 2:envoy.config.rbac.v3.Principal.Set 8:envoy.config.rbac.v3.Principal 14:envoy.config.core.v3.TypedExtensionConfig
envoy.config.rbac.v3.Principal.Set 1:envoy.config.rbac.v3.Principal
envoy.config.rbac.v3.RBAC 2:*envoy.config.rbac.v3.Policy 3:envoy.config.rbac.v3.RBAC.AuditLoggingOptions
envoy.config.rbac.v3.RBAC.AuditLoggingOptions 2:envoy.config.rbac.v3.RBAC.AuditLoggingOptions.AuditLoggerConfig
envoy.config.rbac.v3.RBAC.AuditLoggingOptions.AuditLoggerConfig 1:envoy.config.core.v3.TypedExtensionConfig
envoy.config.route.v3.ClusterSpecifierPlugin 1:envoy.config.core.v3.TypedExtensionConfig
envoy.config.route.v3.DirectResponseAction 3:envoy.config.core.v3.SubstitutionFormatString
envoy.config.route.v3.FilterAction 1:any
envoy.config.route.v3.FilterConfig 1:any
envoy.config.route.v3.InternalRedirectPolicy 3:envoy.config.core.v3.TypedExtensionConfig
envoy.config.route.v3.RateLimit 3:envoy.config.route.v3.RateLimit.Action
envoy.config.route.v3.RateLimit.Action 9:envoy.config.core.v3.TypedExtensionConfig
envoy.config.route.v3.RetryPolicy 4:envoy.config.route.v3.RetryPolicy.RetryPriority 5:envoy.config.route.v3.RetryPolicy.RetryHostPredicate 12:envoy.config.core.v3.TypedExtensionConfig
envoy.config.route.v3.RetryPolicy.RetryHostPredicate 3:any
envoy.config.route.v3.RetryPolicy.RetryPriority 3:any
envoy.config.route.v3.Route 1:envoy.config.route.v3.RouteMatch 2:envoy.config.route.v3.RouteAction 7:envoy.config.route.v3.DirectResponseAction 17:envoy.config.route.v3.FilterAction 4:envoy.config.core.v3.Metadata 13:*any 21:envoy.config.core.v3.TypedExtensionConfig
envoy.config.route.v3.RouteAction 1:cds 3:envoy.config.route.v3.WeightedCluster 39:envoy.config.route.v3.ClusterSpecifierPlugin 4:envoy.config.core.v3.Metadata 41:envoy.config.core.v3.TypedExtensionConfig 40:envoy.config.core.v3.TypedExtensionConfig 9:envoy.config.route.v3.RetryPolicy 33:any 30:envoy.config.route.v3.RouteAction.RequestMirrorPolicy 13:envoy.config.route.v3.RateLimit 25:envoy.config.route.v3.RouteAction.UpgradeConfig 34:envoy.config.route.v3.InternalRedirectPolicy
envoy.config.route.v3.RouteAction.RequestMirrorPolicy 1:cds
envoy.config.route.v3.RouteAction.UpgradeConfig 3:envoy.config.route.v3.RouteAction.UpgradeConfig.ConnectConfig
envoy.config.route.v3.RouteAction.UpgradeConfig.ConnectConfig 1:envoy.config.core.v3.ProxyProtocolConfig
envoy.config.route.v3.RouteConfiguration 2:envoy.config.route.v3.VirtualHost 9:envoy.config.route.v3.Vhds 12:envoy.config.route.v3.ClusterSpecifierPlugin 13:envoy.config.route.v3.RouteAction.RequestMirrorPolicy 16:*any 17:envoy.config.core.v3.Metadata 19:envoy.config.core.v3.TypedExtensionConfig
envoy.config.route.v3.RouteList 1:envoy.config.route.v3.Route
envoy.config.route.v3.RouteMatch 15:envoy.config.core.v3.TypedExtensionConfig
envoy.config.route.v3.ScopedRouteConfiguration 2:rds 5:envoy.config.route.v3.RouteConfiguration
envoy.config.route.v3.Vhds 1:envoy.config.core.v3.ConfigSource
envoy.config.route.v3.VirtualHost 3:envoy.config.route.v3.Route 21:xds.type.matcher.v3.Matcher 6:envoy.config.route.v3.RateLimit 15:*any 16:envoy.config.route.v3.RetryPolicy 20:any 22:envoy.config.route.v3.RouteAction.RequestMirrorPolicy 24:envoy.config.core.v3.Metadata 26:envoy.config.core.v3.TypedExtensionConfig
envoy.config.route.v3.WeightedCluster 1:envoy.config.route.v3.WeightedCluster.ClusterWeight
envoy.config.route.v3.WeightedCluster.ClusterWeight 1:cds 3:envoy.config.core.v3.Metadata 10:*any
envoy.config.tap.v3.OutputConfig 1:envoy.config.tap.v3.OutputSink
envoy.config.tap.v3.OutputSink 4:envoy.config.tap.v3.StreamingGrpcSink 6:envoy.config.core.v3.TypedExtensionConfig
envoy.config.tap.v3.StreamingGrpcSink 2:envoy.config.core.v3.GrpcService
envoy.config.tap.v3.TapConfig 2:envoy.config.tap.v3.OutputConfig
envoy.config.trace.v3.DatadogConfig 1:cds
envoy.config.trace.v3.LightstepConfig 1:cds
envoy.config.trace.v3.OpenTelemetryConfig 1:envoy.config.core.v3.GrpcService 3:envoy.config.core.v3.HttpService 10:envoy.config.core.v3.TypedExtensionConfig 4:envoy.config.core.v3.TypedExtensionConfig 5:envoy.config.core.v3.TypedExtensionConfig
envoy.config.trace.v3.SkyWalkingConfig 1:envoy.config.core.v3.GrpcService
envoy.config.trace.v3.TraceServiceConfig 1:envoy.config.core.v3.GrpcService
envoy.config.trace.v3.Tracing 1:envoy.config.trace.v3.Tracing.Http
envoy.config.trace.v3.Tracing.Http 3:any
envoy.config.trace.v3.ZipkinConfig 1:cds 9:envoy.config.core.v3.HttpService
envoy.extensions.access_loggers.dynamic_modules.v3.DynamicModuleAccessLog 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.access_loggers.file.v3.FileAccessLog 5:envoy.config.core.v3.SubstitutionFormatString
envoy.extensions.access_loggers.filters.process_ratelimit.v3.DynamicTokenBucket 2:envoy.config.core.v3.ConfigSource
envoy.extensions.access_loggers.filters.process_ratelimit.v3.ProcessRateLimitFilter 1:envoy.extensions.access_loggers.filters.process_ratelimit.v3.DynamicTokenBucket
envoy.extensions.access_loggers.fluentd.v3.FluentdAccessLogConfig 1:cds 8:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.access_loggers.grpc.v3.CommonGrpcAccessLogConfig 2:envoy.config.core.v3.GrpcService 7:envoy.config.core.v3.RetryPolicy
envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig 1:envoy.extensions.access_loggers.grpc.v3.CommonGrpcAccessLogConfig
envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig 1:envoy.extensions.access_loggers.grpc.v3.CommonGrpcAccessLogConfig
envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig 1:envoy.extensions.access_loggers.grpc.v3.CommonGrpcAccessLogConfig 8:envoy.config.core.v3.HttpService 9:envoy.config.core.v3.GrpcService 15:envoy.config.core.v3.TypedExtensionConfig 7:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.access_loggers.stats.v3.Config 3:envoy.extensions.access_loggers.stats.v3.Config.Histogram 4:envoy.extensions.access_loggers.stats.v3.Config.Counter 5:envoy.extensions.access_loggers.stats.v3.Config.Gauge
envoy.extensions.access_loggers.stats.v3.Config.Counter 1:envoy.extensions.access_loggers.stats.v3.Config.Stat
envoy.extensions.access_loggers.stats.v3.Config.Gauge 1:envoy.extensions.access_loggers.stats.v3.Config.Stat
envoy.extensions.access_loggers.stats.v3.Config.Histogram 1:envoy.extensions.access_loggers.stats.v3.Config.Stat
envoy.extensions.access_loggers.stats.v3.Config.Stat 2:envoy.extensions.access_loggers.stats.v3.Config.Tag
envoy.extensions.access_loggers.stats.v3.Config.Tag 3:xds.type.matcher.v3.Matcher
envoy.extensions.access_loggers.stream.v3.StderrAccessLog 1:envoy.config.core.v3.SubstitutionFormatString
envoy.extensions.access_loggers.stream.v3.StdoutAccessLog 1:envoy.config.core.v3.SubstitutionFormatString
envoy.extensions.access_loggers.wasm.v3.WasmAccessLog 1:envoy.extensions.wasm.v3.PluginConfig
envoy.extensions.bootstrap.dynamic_modules.v3.DynamicModuleBootstrapExtension 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.bootstrap.reverse_tunnel.downstream_socket_interface.v3.DownstreamReverseConnectionSocketInterface 3:envoy.extensions.bootstrap.reverse_tunnel.downstream_socket_interface.v3.DownstreamReverseConnectionSocketInterface.HttpHandshakeConfig 4:envoy.config.accesslog.v3.AccessLog
envoy.extensions.bootstrap.reverse_tunnel.downstream_socket_interface.v3.DownstreamReverseConnectionSocketInterface.HttpHandshakeConfig 4:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.bootstrap.reverse_tunnel.upstream_socket_interface.v3.UpstreamReverseConnectionSocketInterface 4:envoy.config.core.v3.TypedExtensionConfig 6:envoy.config.accesslog.v3.AccessLog
envoy.extensions.clusters.aggregate.v3.AggregateClusterResource 1:envoy.config.core.v3.ConfigSource
envoy.extensions.clusters.aggregate.v3.ClusterConfig 1:cds
envoy.extensions.clusters.dns.v3.DnsCluster 7:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.clusters.dynamic_forward_proxy.v3.ClusterConfig 1:envoy.extensions.common.dynamic_forward_proxy.v3.DnsCacheConfig 4:envoy.extensions.clusters.dynamic_forward_proxy.v3.SubClustersConfig
envoy.extensions.clusters.dynamic_forward_proxy.v3.SubClustersConfig 5:envoy.extensions.clusters.dns.v3.DnsCluster
envoy.extensions.clusters.dynamic_modules.v3.ClusterConfig 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 2:cds 3:any
envoy.extensions.clusters.mcp_multicluster.v3.ClusterConfig 1:envoy.extensions.clusters.mcp_multicluster.v3.ClusterConfig.McpBackend
envoy.extensions.clusters.mcp_multicluster.v3.ClusterConfig.McpBackend 2:envoy.extensions.clusters.mcp_multicluster.v3.ClusterConfig.McpCluster
envoy.extensions.clusters.mcp_multicluster.v3.ClusterConfig.McpCluster 1:cds
envoy.extensions.common.dynamic_forward_proxy.v3.DnsCacheConfig 12:envoy.config.core.v3.TypedExtensionConfig 13:envoy.config.common.key_value.v3.KeyValueStoreConfig
envoy.extensions.common.matching.v3.ExtensionWithMatcher 1:envoy.config.common.matcher.v3.Matcher 3:xds.type.matcher.v3.Matcher 2:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.common.matching.v3.ExtensionWithMatcherPerRoute 1:xds.type.matcher.v3.Matcher
envoy.extensions.common.tap.v3.CommonExtensionConfig 2:envoy.config.tap.v3.TapConfig
envoy.extensions.config.validators.dynamic_modules.v3.DynamicModuleConfigValidator 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 6:envoy.config.core.v3.AsyncDataSource
envoy.extensions.filters.common.jwks.v3.JwtHandshakeValidator 8:envoy.extensions.filters.common.jwks.v3.RemoteJwks
envoy.extensions.filters.common.jwks.v3.RemoteJwks 1:envoy.config.core.v3.HttpUri 4:envoy.config.core.v3.RetryPolicy
envoy.extensions.filters.common.set_filter_state.v3.FilterStateValue 2:envoy.config.core.v3.SubstitutionFormatString
envoy.extensions.filters.http.ai_protocol_manager.v3.AiProtocolManager 3:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.filters.http.alternate_protocols_cache.v3.FilterConfig 1:envoy.config.core.v3.AlternateProtocolsCacheOptions
envoy.extensions.filters.http.aws_eventstream_parser.v3.AwsEventstreamParser 1:envoy.extensions.filters.http.aws_eventstream_parser.v3.AwsEventstreamParser.ProcessingRules
envoy.extensions.filters.http.aws_eventstream_parser.v3.AwsEventstreamParser.ProcessingRules 1:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.filters.http.bandwidth_share.v3.BandwidthShare 6:xds.type.matcher.v3.Matcher
envoy.extensions.filters.http.cache.v3.CacheConfig 1:any
envoy.extensions.filters.http.cache_v2.v3.CacheV2Config 1:any
envoy.extensions.filters.http.composite.v3.Composite 1:*envoy.extensions.filters.http.composite.v3.FilterChainConfiguration 2:xds.type.matcher.v3.Matcher
envoy.extensions.filters.http.composite.v3.CompositePerRoute 1:xds.type.matcher.v3.Matcher
envoy.extensions.filters.http.composite.v3.DynamicConfig 1:ecds 2:envoy.config.core.v3.ExtensionConfigSource
envoy.extensions.filters.http.composite.v3.ExecuteFilterAction 1:envoy.config.core.v3.TypedExtensionConfig 2:envoy.extensions.filters.http.composite.v3.DynamicConfig 4:envoy.extensions.filters.http.composite.v3.FilterChainConfiguration
envoy.extensions.filters.http.composite.v3.FilterChainConfiguration 1:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.filters.http.compressor.v3.Compressor 6:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.filters.http.compressor.v3.CompressorOverrides 2:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.filters.http.compressor.v3.CompressorPerRoute 2:envoy.extensions.filters.http.compressor.v3.CompressorOverrides
envoy.extensions.filters.http.credential_injector.v3.CredentialInjector 3:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.filters.http.custom_response.v3.CustomResponse 1:xds.type.matcher.v3.Matcher
envoy.extensions.filters.http.decompressor.v3.Decompressor 1:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.filters.http.dynamic_forward_proxy.v3.FilterConfig 1:envoy.extensions.common.dynamic_forward_proxy.v3.DnsCacheConfig
envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilterPerRoute 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.filters.http.ext_authz.v3.CheckSettings 4:envoy.config.core.v3.GrpcService 5:envoy.extensions.filters.http.ext_authz.v3.HttpService
envoy.extensions.filters.http.ext_authz.v3.ExtAuthz 1:envoy.config.core.v3.GrpcService 3:envoy.extensions.filters.http.ext_authz.v3.HttpService
envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute 2:envoy.extensions.filters.http.ext_authz.v3.CheckSettings
envoy.extensions.filters.http.ext_authz.v3.HttpService 1:envoy.config.core.v3.HttpUri 9:envoy.config.core.v3.RetryPolicy
envoy.extensions.filters.http.ext_proc.v3.ExtProcHttpService 1:envoy.config.core.v3.HttpService
envoy.extensions.filters.http.ext_proc.v3.ExtProcOverrides 5:envoy.config.core.v3.GrpcService 9:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute 2:envoy.extensions.filters.http.ext_proc.v3.ExtProcOverrides
envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor 1:envoy.config.core.v3.GrpcService 20:envoy.extensions.filters.http.ext_proc.v3.ExtProcHttpService 25:envoy.config.core.v3.TypedExtensionConfig 23:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.filters.http.filter_chain.v3.FilterChain 1:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.filters.http.filter_chain.v3.FilterChainConfig 1:envoy.extensions.filters.http.filter_chain.v3.FilterChain
envoy.extensions.filters.http.filter_chain.v3.FilterChainConfigPerRoute 1:envoy.extensions.filters.http.filter_chain.v3.FilterChain
envoy.extensions.filters.http.gcp_authn.v3.GcpAuthnFilterConfig 1:envoy.config.core.v3.HttpUri 2:envoy.config.core.v3.RetryPolicy 5:cds
envoy.extensions.filters.http.geoip.v3.Geoip 3:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.filters.http.gzip.v3.Gzip 10:envoy.extensions.filters.http.compressor.v3.Compressor
envoy.extensions.filters.http.header_mutation.v3.HeaderMutation 1:envoy.extensions.filters.http.header_mutation.v3.Mutations
envoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute 1:envoy.extensions.filters.http.header_mutation.v3.Mutations
envoy.extensions.filters.http.header_mutation.v3.Mutations 6:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication 1:*envoy.extensions.filters.http.jwt_authn.v3.JwtProvider 2:envoy.extensions.filters.http.jwt_authn.v3.RequirementRule
envoy.extensions.filters.http.jwt_authn.v3.JwtProvider 3:envoy.extensions.filters.http.jwt_authn.v3.RemoteJwks
envoy.extensions.filters.http.jwt_authn.v3.RemoteJwks 1:envoy.config.core.v3.HttpUri 4:envoy.config.core.v3.RetryPolicy
envoy.extensions.filters.http.jwt_authn.v3.RequirementRule 1:envoy.config.route.v3.RouteMatch
envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit 17:envoy.config.route.v3.RateLimit
envoy.extensions.filters.http.mcp_router.v3.McpRouter 1:envoy.extensions.filters.http.mcp_router.v3.McpRouter.McpBackend
envoy.extensions.filters.http.mcp_router.v3.McpRouter.McpBackend 2:envoy.extensions.filters.http.mcp_router.v3.McpRouter.McpCluster
envoy.extensions.filters.http.mcp_router.v3.McpRouter.McpCluster 1:cds
envoy.extensions.filters.http.oauth2.v3.OAuth2 1:envoy.extensions.filters.http.oauth2.v3.OAuth2Config
envoy.extensions.filters.http.oauth2.v3.OAuth2Config 1:envoy.config.core.v3.HttpUri 18:envoy.config.core.v3.RetryPolicy 3:envoy.extensions.filters.http.oauth2.v3.OAuth2Credentials
envoy.extensions.filters.http.oauth2.v3.OAuth2Credentials 2:envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig 3:envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig
envoy.extensions.filters.http.oauth2.v3.OAuth2PerRoute 1:envoy.extensions.filters.http.oauth2.v3.OAuth2Config
envoy.extensions.filters.http.on_demand.v3.OnDemand 1:envoy.extensions.filters.http.on_demand.v3.OnDemandCds
envoy.extensions.filters.http.on_demand.v3.OnDemandCds 1:envoy.config.core.v3.ConfigSource
envoy.extensions.filters.http.on_demand.v3.PerRouteConfig 1:envoy.extensions.filters.http.on_demand.v3.OnDemandCds
envoy.extensions.filters.http.proto_api_scrubber.v3.MessageRestrictions 1:envoy.extensions.filters.http.proto_api_scrubber.v3.RestrictionConfig 2:*envoy.extensions.filters.http.proto_api_scrubber.v3.RestrictionConfig
envoy.extensions.filters.http.proto_api_scrubber.v3.MethodRestrictions 1:*envoy.extensions.filters.http.proto_api_scrubber.v3.RestrictionConfig 2:*envoy.extensions.filters.http.proto_api_scrubber.v3.RestrictionConfig 3:envoy.extensions.filters.http.proto_api_scrubber.v3.RestrictionConfig
envoy.extensions.filters.http.proto_api_scrubber.v3.ProtoApiScrubberConfig 2:envoy.extensions.filters.http.proto_api_scrubber.v3.Restrictions
envoy.extensions.filters.http.proto_api_scrubber.v3.RestrictionConfig 1:xds.type.matcher.v3.Matcher
envoy.extensions.filters.http.proto_api_scrubber.v3.Restrictions 1:*envoy.extensions.filters.http.proto_api_scrubber.v3.MethodRestrictions 2:*envoy.extensions.filters.http.proto_api_scrubber.v3.MessageRestrictions
envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings 1:envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings.BucketIdBuilder
envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings.BucketIdBuilder 1:*envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings.BucketIdBuilder.ValueBuilder
envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings.BucketIdBuilder.ValueBuilder 2:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig 1:envoy.config.core.v3.GrpcService 3:xds.type.matcher.v3.Matcher
envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaOverride 2:xds.type.matcher.v3.Matcher
envoy.extensions.filters.http.ratelimit.v3.RateLimit 7:envoy.config.ratelimit.v3.RateLimitServiceConfig 17:envoy.config.route.v3.RateLimit
envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute 3:envoy.config.route.v3.RateLimit
envoy.extensions.filters.http.rbac.v3.RBAC 1:envoy.config.rbac.v3.RBAC 4:xds.type.matcher.v3.Matcher 2:envoy.config.rbac.v3.RBAC 5:xds.type.matcher.v3.Matcher
envoy.extensions.filters.http.rbac.v3.RBACPerRoute 2:envoy.extensions.filters.http.rbac.v3.RBAC
envoy.extensions.filters.http.router.v3.Router 3:envoy.config.accesslog.v3.AccessLog 8:envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter
envoy.extensions.filters.http.set_filter_state.v3.Config 1:envoy.extensions.filters.common.set_filter_state.v3.FilterStateValue
envoy.extensions.filters.http.set_metadata.v3.Config 3:envoy.extensions.filters.http.set_metadata.v3.Metadata
envoy.extensions.filters.http.set_metadata.v3.Metadata 4:any
envoy.extensions.filters.http.sse_to_metadata.v3.SseToMetadata 1:envoy.extensions.filters.http.sse_to_metadata.v3.SseToMetadata.ProcessingRules
envoy.extensions.filters.http.sse_to_metadata.v3.SseToMetadata.ProcessingRules 1:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.filters.http.stateful_session.v3.StatefulSession 1:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute 2:envoy.extensions.filters.http.stateful_session.v3.StatefulSession
envoy.extensions.filters.http.tap.v3.Tap 1:envoy.extensions.common.tap.v3.CommonExtensionConfig
envoy.extensions.filters.http.transform.v3.BodyTransformation 1:envoy.config.core.v3.SubstitutionFormatString
envoy.extensions.filters.http.transform.v3.TransformConfig 1:envoy.extensions.filters.http.transform.v3.Transformation 2:envoy.extensions.filters.http.transform.v3.Transformation
envoy.extensions.filters.http.transform.v3.Transformation 2:envoy.extensions.filters.http.transform.v3.BodyTransformation
envoy.extensions.filters.http.wasm.v3.Wasm 1:envoy.extensions.wasm.v3.PluginConfig
envoy.extensions.filters.listener.dynamic_modules.v3.DynamicModuleListenerFilter 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.filters.listener.set_filter_state.v3.Config 1:envoy.extensions.filters.common.set_filter_state.v3.FilterStateValue
envoy.extensions.filters.network.dubbo_proxy.v3.Drds 1:envoy.config.core.v3.ConfigSource 2:rds
envoy.extensions.filters.network.dubbo_proxy.v3.DubboFilter 2:any
envoy.extensions.filters.network.dubbo_proxy.v3.DubboProxy 4:envoy.extensions.filters.network.dubbo_proxy.v3.RouteConfiguration 6:envoy.extensions.filters.network.dubbo_proxy.v3.Drds 7:envoy.extensions.filters.network.dubbo_proxy.v3.MultipleRouteConfiguration 5:envoy.extensions.filters.network.dubbo_proxy.v3.DubboFilter
envoy.extensions.filters.network.dubbo_proxy.v3.MultipleRouteConfiguration 4:envoy.extensions.filters.network.dubbo_proxy.v3.RouteConfiguration
envoy.extensions.filters.network.dubbo_proxy.v3.Route 2:envoy.extensions.filters.network.dubbo_proxy.v3.RouteAction
envoy.extensions.filters.network.dubbo_proxy.v3.RouteAction 1:cds 2:envoy.config.route.v3.WeightedCluster 3:envoy.config.core.v3.Metadata
envoy.extensions.filters.network.dubbo_proxy.v3.RouteConfiguration 5:envoy.extensions.filters.network.dubbo_proxy.v3.Route
envoy.extensions.filters.network.dynamic_modules.v3.DynamicModuleNetworkFilter 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.filters.network.ext_authz.v3.ExtAuthz 2:envoy.config.core.v3.GrpcService
envoy.extensions.filters.network.ext_proc.v3.NetworkExternalProcessor 1:envoy.config.core.v3.GrpcService
envoy.extensions.filters.network.generic_proxy.action.v3.RouteAction 1:cds 2:envoy.config.route.v3.WeightedCluster 3:envoy.config.core.v3.Metadata 4:*any 7:envoy.config.core.v3.RetryPolicy
envoy.extensions.filters.network.generic_proxy.v3.GenericProxy 2:envoy.config.core.v3.TypedExtensionConfig 3:envoy.extensions.filters.network.generic_proxy.v3.GenericRds 4:envoy.extensions.filters.network.generic_proxy.v3.RouteConfiguration 5:envoy.config.core.v3.TypedExtensionConfig 6:envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.Tracing 7:envoy.config.accesslog.v3.AccessLog
envoy.extensions.filters.network.generic_proxy.v3.GenericRds 1:envoy.config.core.v3.ConfigSource 2:rds
envoy.extensions.filters.network.generic_proxy.v3.RouteConfiguration 2:xds.type.matcher.v3.Matcher 3:envoy.extensions.filters.network.generic_proxy.v3.VirtualHost
envoy.extensions.filters.network.generic_proxy.v3.VirtualHost 3:xds.type.matcher.v3.Matcher
envoy.extensions.filters.network.geoip.v3.Geoip 2:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.filters.network.http_connection_manager.v3.EnvoyMobileHttpConnectionManager 1:envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager 3:envoy.extensions.filters.network.http_connection_manager.v3.Rds 4:envoy.config.route.v3.RouteConfiguration 31:envoy.extensions.filters.network.http_connection_manager.v3.ScopedRoutes 5:envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter 7:envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.Tracing 8:envoy.config.core.v3.Http1ProtocolOptions 44:envoy.config.core.v3.Http3ProtocolOptions 13:envoy.config.accesslog.v3.AccessLog 46:envoy.config.core.v3.TypedExtensionConfig 52:envoy.config.core.v3.TypedExtensionConfig 60:xds.type.matcher.v3.Matcher 23:envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.UpgradeConfig 36:envoy.extensions.filters.network.http_connection_manager.v3.RequestIDExtension 38:envoy.extensions.filters.network.http_connection_manager.v3.LocalReplyConfig 50:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.Tracing 9:envoy.config.trace.v3.Tracing.Http
envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.UpgradeConfig 2:envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter
envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter 1:ecds 4:any 5:envoy.config.core.v3.ExtensionConfigSource
envoy.extensions.filters.network.http_connection_manager.v3.LocalReplyConfig 1:envoy.extensions.filters.network.http_connection_manager.v3.ResponseMapper 2:envoy.config.core.v3.SubstitutionFormatString
envoy.extensions.filters.network.http_connection_manager.v3.Rds 1:envoy.config.core.v3.ConfigSource 2:rds
envoy.extensions.filters.network.http_connection_manager.v3.RequestIDExtension 1:any
envoy.extensions.filters.network.http_connection_manager.v3.ResponseMapper 1:envoy.config.accesslog.v3.AccessLogFilter 4:envoy.config.core.v3.SubstitutionFormatString
envoy.extensions.filters.network.http_connection_manager.v3.ScopedRds 1:envoy.config.core.v3.ConfigSource
envoy.extensions.filters.network.http_connection_manager.v3.ScopedRouteConfigurationsList 1:envoy.config.route.v3.ScopedRouteConfiguration
envoy.extensions.filters.network.http_connection_manager.v3.ScopedRoutes 3:envoy.config.core.v3.ConfigSource 4:envoy.extensions.filters.network.http_connection_manager.v3.ScopedRouteConfigurationsList 5:envoy.extensions.filters.network.http_connection_manager.v3.ScopedRds
envoy.extensions.filters.network.ratelimit.v3.RateLimit 6:envoy.config.ratelimit.v3.RateLimitServiceConfig
envoy.extensions.filters.network.rbac.v3.RBAC 1:envoy.config.rbac.v3.RBAC 6:xds.type.matcher.v3.Matcher 2:envoy.config.rbac.v3.RBAC 7:xds.type.matcher.v3.Matcher
envoy.extensions.filters.network.redis_proxy.v3.RedisExternalAuthProvider 1:envoy.config.core.v3.GrpcService
envoy.extensions.filters.network.redis_proxy.v3.RedisProxy 3:envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.ConnPoolSettings 5:envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes 10:envoy.extensions.filters.network.redis_proxy.v3.RedisExternalAuthProvider
envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.ConnPoolSettings 9:envoy.extensions.common.dynamic_forward_proxy.v3.DnsCacheConfig
envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes 1:envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route 4:envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route
envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route 3:cds 4:envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route.RequestMirrorPolicy 6:envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route.ReadCommandPolicy
envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route.ReadCommandPolicy 1:cds
envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route.RequestMirrorPolicy 1:cds
envoy.extensions.filters.network.reverse_tunnel.v3.DrainAwareHttpConnectionManager 1:envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
envoy.extensions.filters.network.reverse_tunnel.v3.ReverseTunnel 10:envoy.extensions.filters.common.jwks.v3.JwtHandshakeValidator
envoy.extensions.filters.network.set_filter_state.v3.Config 1:envoy.extensions.filters.common.set_filter_state.v3.FilterStateValue 2:envoy.extensions.filters.common.set_filter_state.v3.FilterStateValue 3:envoy.extensions.filters.common.set_filter_state.v3.FilterStateValue
envoy.extensions.filters.network.sni_dynamic_forward_proxy.v3.FilterConfig 1:envoy.extensions.common.dynamic_forward_proxy.v3.DnsCacheConfig
envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy 2:cds 10:envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster 14:envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.OnDemand 9:envoy.config.core.v3.Metadata 5:envoy.config.accesslog.v3.AccessLog 12:envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.TunnelingConfig 19:envoy.config.core.v3.TlvEntry
envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.OnDemand 1:envoy.config.core.v3.ConfigSource
envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.TunnelingConfig 7:envoy.extensions.filters.network.http_connection_manager.v3.RequestIDExtension 10:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster 1:envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight
envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight 1:cds 3:envoy.config.core.v3.Metadata
envoy.extensions.filters.network.thrift_proxy.filters.ratelimit.v3.RateLimit 5:envoy.config.ratelimit.v3.RateLimitServiceConfig
envoy.extensions.filters.network.thrift_proxy.v3.Route 2:envoy.extensions.filters.network.thrift_proxy.v3.RouteAction
envoy.extensions.filters.network.thrift_proxy.v3.RouteAction 1:cds 2:envoy.extensions.filters.network.thrift_proxy.v3.WeightedCluster 3:envoy.config.core.v3.Metadata 4:envoy.config.route.v3.RateLimit 7:envoy.extensions.filters.network.thrift_proxy.v3.RouteAction.RequestMirrorPolicy
envoy.extensions.filters.network.thrift_proxy.v3.RouteAction.RequestMirrorPolicy 1:cds
envoy.extensions.filters.network.thrift_proxy.v3.RouteConfiguration 2:envoy.extensions.filters.network.thrift_proxy.v3.Route
envoy.extensions.filters.network.thrift_proxy.v3.ThriftFilter 3:any
envoy.extensions.filters.network.thrift_proxy.v3.ThriftProxy 4:envoy.extensions.filters.network.thrift_proxy.v3.RouteConfiguration 8:envoy.extensions.filters.network.thrift_proxy.v3.Trds 5:envoy.extensions.filters.network.thrift_proxy.v3.ThriftFilter 9:envoy.config.accesslog.v3.AccessLog
envoy.extensions.filters.network.thrift_proxy.v3.Trds 1:envoy.config.core.v3.ConfigSource 2:rds
envoy.extensions.filters.network.thrift_proxy.v3.WeightedCluster 1:envoy.extensions.filters.network.thrift_proxy.v3.WeightedCluster.ClusterWeight
envoy.extensions.filters.network.thrift_proxy.v3.WeightedCluster.ClusterWeight 1:cds 3:envoy.config.core.v3.Metadata
envoy.extensions.filters.network.wasm.v3.Wasm 1:envoy.extensions.wasm.v3.PluginConfig
envoy.extensions.filters.udp.dns_filter.v3.DnsFilterConfig 3:envoy.extensions.filters.udp.dns_filter.v3.DnsFilterConfig.ClientContextConfig 4:envoy.config.accesslog.v3.AccessLog
envoy.extensions.filters.udp.dns_filter.v3.DnsFilterConfig.ClientContextConfig 4:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.filters.udp.dynamic_modules.v3.DynamicModuleUdpListenerFilter 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.filters.udp.udp_proxy.session.dynamic_forward_proxy.v3.FilterConfig 2:envoy.extensions.common.dynamic_forward_proxy.v3.DnsCacheConfig
envoy.extensions.filters.udp.udp_proxy.session.ext_authz.v3.FilterConfig 2:envoy.config.core.v3.GrpcService
envoy.extensions.filters.udp.udp_proxy.v3.Route 1:cds
envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig 2:cds 9:xds.type.matcher.v3.Matcher 8:envoy.config.accesslog.v3.AccessLog 10:envoy.config.accesslog.v3.AccessLog 11:envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.SessionFilter 12:envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.UdpTunnelingConfig
envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.SessionFilter 1:ecds 2:any 3:envoy.config.core.v3.ExtensionConfigSource
envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.UdpTunnelingConfig 12:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.formatter.dynamic_modules.v3.DynamicModuleFormatter 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.formatter.generic_secret.v3.GenericSecret 1:*envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig
envoy.extensions.grpc_service.channel_credentials.xds.v3.XdsCredentials 1:any
envoy.extensions.health_checkers.dynamic_modules.v3.DynamicModuleHealthCheck 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.http.custom_response.local_response_policy.v3.LocalResponsePolicy 2:envoy.config.core.v3.SubstitutionFormatString
envoy.extensions.http.custom_response.redirect_policy.v3.RedirectPolicy 6:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.http.early_header_mutation.dynamic_modules.v3.DynamicModuleEarlyHeaderMutation 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.http.header_formatters.dynamic_modules.v3.DynamicModuleHeaderFormatter 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.http.injected_credentials.generic.v3.Generic 1:envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig
envoy.extensions.http.injected_credentials.oauth2.v3.OAuth2 1:envoy.config.core.v3.HttpUri 3:envoy.extensions.http.injected_credentials.oauth2.v3.OAuth2.ClientCredentials
envoy.extensions.http.injected_credentials.oauth2.v3.OAuth2.ClientCredentials 2:envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig
envoy.extensions.load_balancing_policies.dynamic_modules.v3.DynamicModulesLoadBalancerConfig 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.load_balancing_policies.load_aware_locality.v3.LoadAwareLocality 1:envoy.config.cluster.v3.LoadBalancingPolicy
envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost 3:envoy.config.cluster.v3.LoadBalancingPolicy
envoy.extensions.load_balancing_policies.random_subsetting.v3.RandomSubsetting 2:envoy.config.cluster.v3.LoadBalancingPolicy
envoy.extensions.load_balancing_policies.subset.v3.Subset 9:envoy.config.cluster.v3.LoadBalancingPolicy
envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality 1:envoy.config.cluster.v3.LoadBalancingPolicy
envoy.extensions.matching.http.dynamic_modules.v3.DynamicModuleDataInput 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.matching.input_matchers.dynamic_modules.v3.DynamicModuleMatcher 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.quic.connection_id_generator.quic_lb.v3.Config 5:envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig
envoy.extensions.retry.host.omit_host_metadata.v3.OmitHostMetadataConfig 1:envoy.config.core.v3.Metadata
envoy.extensions.router.cluster_specifiers.dynamic_modules.v3.DynamicModuleClusterSpecifier 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any 4:*envoy.extensions.router.cluster_specifiers.dynamic_modules.v3.RouteActionOverride
envoy.extensions.router.cluster_specifiers.dynamic_modules.v3.RouteActionOverride 1:envoy.config.route.v3.RetryPolicy 2:envoy.config.core.v3.Metadata 3:envoy.config.route.v3.RouteAction.RequestMirrorPolicy
envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig 2:cds
envoy.extensions.router.cluster_specifiers.matcher.v3.ClusterAction 1:cds
envoy.extensions.router.cluster_specifiers.matcher.v3.MatcherClusterSpecifier 1:xds.type.matcher.v3.Matcher
envoy.extensions.router.cluster_specifiers.priority_group.v3.ClusterWeight 1:cds
envoy.extensions.router.cluster_specifiers.priority_group.v3.PriorityGroup 2:envoy.extensions.router.cluster_specifiers.priority_group.v3.ClusterWeight
envoy.extensions.router.cluster_specifiers.priority_group.v3.PriorityGroupClusterSpecifier 1:envoy.extensions.router.cluster_specifiers.priority_group.v3.PriorityGroup
envoy.extensions.router.cluster_specifiers.priority_group.v3.PriorityGroupsOverride 1:envoy.extensions.router.cluster_specifiers.priority_group.v3.PriorityGroup
envoy.extensions.router.route_specifiers.dynamic_modules.v3.DynamicModuleRouteSpecifier 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any 5:envoy.extensions.router.route_specifiers.dynamic_modules.v3.RouteTemplate 6:envoy.extensions.router.route_specifiers.dynamic_modules.v3.RouteOverride
envoy.extensions.router.route_specifiers.dynamic_modules.v3.RouteOverride 2:envoy.config.route.v3.RetryPolicy 3:envoy.config.core.v3.Metadata 4:envoy.config.route.v3.RouteAction.RequestMirrorPolicy 7:envoy.config.route.v3.RateLimit 11:envoy.config.core.v3.Metadata
envoy.extensions.router.route_specifiers.dynamic_modules.v3.RouteTemplate 2:envoy.config.route.v3.Route
envoy.extensions.stat_sinks.dynamic_modules.v3.DynamicModuleStatsSink 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.stat_sinks.open_telemetry.v3.SinkConfig 1:envoy.config.core.v3.GrpcService 9:envoy.config.core.v3.HttpService 7:envoy.config.core.v3.TypedExtensionConfig 8:xds.type.matcher.v3.Matcher
envoy.extensions.stat_sinks.wasm.v3.Wasm 1:envoy.extensions.wasm.v3.PluginConfig
envoy.extensions.tracers.dynamic_modules.v3.DynamicModuleTracer 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.tracers.fluentd.v3.FluentdConfig 1:cds 6:envoy.config.core.v3.RetryPolicy
envoy.extensions.tracers.opentelemetry.samplers.v3.DynatraceSamplerConfig 3:envoy.config.core.v3.HttpService
envoy.extensions.tracers.opentelemetry.samplers.v3.ParentBasedSamplerConfig 1:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.transport_sockets.dynamic_modules.v3.DynamicModuleTransportSocket 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.transport_sockets.http_11_proxy.v3.Http11ProxyUpstreamTransport 1:envoy.config.core.v3.TransportSocket
envoy.extensions.transport_sockets.internal_upstream.v3.InternalUpstreamTransport 3:envoy.config.core.v3.TransportSocket
envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport 1:envoy.config.core.v3.ProxyProtocolConfig 2:envoy.config.core.v3.TransportSocket
envoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransport 1:envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
envoy.extensions.transport_sockets.quic.v3.QuicUpstreamTransport 1:envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
envoy.extensions.transport_sockets.starttls.v3.StartTlsConfig 2:envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
envoy.extensions.transport_sockets.starttls.v3.UpstreamStartTlsConfig 2:envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
envoy.extensions.transport_sockets.tap.v3.Tap 1:envoy.extensions.common.tap.v3.CommonExtensionConfig 2:envoy.config.core.v3.TransportSocket
envoy.extensions.transport_sockets.tcp_stats.v3.Config 1:envoy.config.core.v3.TransportSocket
envoy.extensions.transport_sockets.tls.cert_selectors.on_demand_secret.v3.Config 1:envoy.config.core.v3.ConfigSource 2:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.transport_sockets.tls.cert_validator.dynamic_modules.v3.DynamicModuleCertValidatorConfig 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.transport_sockets.tls.handshakers.dynamic_modules.v3.DynamicModuleTlsHandshaker 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext 12:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.transport_sockets.tls.v3.CommonTlsContext 2:envoy.extensions.transport_sockets.tls.v3.TlsCertificate 6:envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig 16:envoy.config.core.v3.TypedExtensionConfig 9:envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.CertificateProvider 3:envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext 7:envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig 8:envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.CombinedCertificateValidationContext 10:envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.CertificateProvider 13:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.CertificateProvider 2:envoy.config.core.v3.TypedExtensionConfig
envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.CombinedCertificateValidationContext 1:envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext 2:envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig 3:envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.CertificateProvider
envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext 1:envoy.extensions.transport_sockets.tls.v3.CommonTlsContext 5:envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig
envoy.extensions.transport_sockets.tls.v3.PrivateKeyProvider 3:any
envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig 1:sds 2:envoy.config.core.v3.ConfigSource
envoy.extensions.transport_sockets.tls.v3.Secret 2:envoy.extensions.transport_sockets.tls.v3.TlsCertificate 4:envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext
envoy.extensions.transport_sockets.tls.v3.TlsCertificate 6:envoy.extensions.transport_sockets.tls.v3.PrivateKeyProvider
envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext 1:envoy.extensions.transport_sockets.tls.v3.CommonTlsContext
envoy.extensions.upstreams.http.dynamic_modules.v3.Config 1:envoy.extensions.dynamic_modules.v3.DynamicModuleConfig 3:any
envoy.extensions.upstreams.http.v3.HttpProtocolOptions 3:envoy.extensions.upstreams.http.v3.HttpProtocolOptions.ExplicitHttpConfig 4:envoy.extensions.upstreams.http.v3.HttpProtocolOptions.UseDownstreamHttpConfig 5:envoy.extensions.upstreams.http.v3.HttpProtocolOptions.AutoHttpConfig 6:envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter 7:envoy.config.core.v3.TypedExtensionConfig 9:envoy.config.route.v3.RouteAction.RequestMirrorPolicy 11:envoy.config.route.v3.RetryPolicy
envoy.extensions.upstreams.http.v3.HttpProtocolOptions.AutoHttpConfig 1:envoy.config.core.v3.Http1ProtocolOptions 3:envoy.config.core.v3.Http3ProtocolOptions 4:envoy.config.core.v3.AlternateProtocolsCacheOptions
envoy.extensions.upstreams.http.v3.HttpProtocolOptions.ExplicitHttpConfig 1:envoy.config.core.v3.Http1ProtocolOptions 3:envoy.config.core.v3.Http3ProtocolOptions
envoy.extensions.upstreams.http.v3.HttpProtocolOptions.UseDownstreamHttpConfig 1:envoy.config.core.v3.Http1ProtocolOptions 3:envoy.config.core.v3.Http3ProtocolOptions
envoy.extensions.wasm.v3.PluginConfig 3:envoy.extensions.wasm.v3.VmConfig 4:any
envoy.extensions.wasm.v3.VmConfig 3:envoy.config.core.v3.AsyncDataSource 4:any
envoy.extensions.wasm.v3.WasmService 1:envoy.extensions.wasm.v3.PluginConfig
xds.core.v3.CollectionEntry 2:xds.core.v3.CollectionEntry.InlineEntry
xds.core.v3.CollectionEntry.InlineEntry 3:any
xds.core.v3.Resource 3:any
xds.core.v3.TypedExtensionConfig 2:any
xds.type.matcher.v3.DoubleRangeMatcher 1:xds.type.matcher.v3.DoubleRangeMatcher.RangeMatcher
xds.type.matcher.v3.DoubleRangeMatcher.RangeMatcher 2:xds.type.matcher.v3.Matcher.OnMatch
xds.type.matcher.v3.IPMatcher 1:xds.type.matcher.v3.IPMatcher.IPRangeMatcher
xds.type.matcher.v3.IPMatcher.IPRangeMatcher 2:xds.type.matcher.v3.Matcher.OnMatch
xds.type.matcher.v3.Int32RangeMatcher 1:xds.type.matcher.v3.Int32RangeMatcher.RangeMatcher
xds.type.matcher.v3.Int32RangeMatcher.RangeMatcher 2:xds.type.matcher.v3.Matcher.OnMatch
xds.type.matcher.v3.Int64RangeMatcher 1:xds.type.matcher.v3.Int64RangeMatcher.RangeMatcher
xds.type.matcher.v3.Int64RangeMatcher.RangeMatcher 2:xds.type.matcher.v3.Matcher.OnMatch
xds.type.matcher.v3.ListStringMatcher 1:xds.type.matcher.v3.StringMatcher
xds.type.matcher.v3.Matcher 1:xds.type.matcher.v3.Matcher.MatcherList 2:xds.type.matcher.v3.Matcher.MatcherTree 3:xds.type.matcher.v3.Matcher.OnMatch
xds.type.matcher.v3.Matcher.MatcherList 1:xds.type.matcher.v3.Matcher.MatcherList.FieldMatcher
xds.type.matcher.v3.Matcher.MatcherList.FieldMatcher 1:xds.type.matcher.v3.Matcher.MatcherList.Predicate 2:xds.type.matcher.v3.Matcher.OnMatch
xds.type.matcher.v3.Matcher.MatcherList.Predicate 1:xds.type.matcher.v3.Matcher.MatcherList.Predicate.SinglePredicate 2:xds.type.matcher.v3.Matcher.MatcherList.Predicate.PredicateList 3:xds.type.matcher.v3.Matcher.MatcherList.Predicate.PredicateList 4:xds.type.matcher.v3.Matcher.MatcherList.Predicate
xds.type.matcher.v3.Matcher.MatcherList.Predicate.PredicateList 1:xds.type.matcher.v3.Matcher.MatcherList.Predicate
xds.type.matcher.v3.Matcher.MatcherList.Predicate.SinglePredicate 1:xds.core.v3.TypedExtensionConfig 2:xds.type.matcher.v3.StringMatcher 3:xds.core.v3.TypedExtensionConfig
xds.type.matcher.v3.Matcher.MatcherTree 1:xds.core.v3.TypedExtensionConfig 2:xds.type.matcher.v3.Matcher.MatcherTree.MatchMap 3:xds.type.matcher.v3.Matcher.MatcherTree.MatchMap 4:xds.core.v3.TypedExtensionConfig
xds.type.matcher.v3.Matcher.MatcherTree.MatchMap 1:*xds.type.matcher.v3.Matcher.OnMatch
xds.type.matcher.v3.Matcher.OnMatch 1:xds.type.matcher.v3.Matcher 2:xds.core.v3.TypedExtensionConfig
xds.type.matcher.v3.ServerNameMatcher 1:xds.type.matcher.v3.ServerNameMatcher.DomainMatcher
xds.type.matcher.v3.ServerNameMatcher.DomainMatcher 2:xds.type.matcher.v3.Matcher.OnMatch
xds.type.matcher.v3.StringMatcher 8:xds.core.v3.TypedExtensionConfig
`;
