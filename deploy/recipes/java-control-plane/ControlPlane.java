import com.google.protobuf.Message;
import com.google.protobuf.TypeRegistry;
import com.google.protobuf.util.JsonFormat;
import io.envoyproxy.controlplane.cache.v3.SimpleCache;
import io.envoyproxy.controlplane.cache.v3.Snapshot;
import io.envoyproxy.controlplane.server.DiscoveryServerCallbacks;
import io.envoyproxy.controlplane.server.V3DiscoveryServer;
import io.envoyproxy.envoy.config.cluster.v3.Cluster;
import io.envoyproxy.envoy.config.endpoint.v3.ClusterLoadAssignment;
import io.envoyproxy.envoy.config.listener.v3.Listener;
import io.envoyproxy.envoy.config.route.v3.RouteConfiguration;
import io.envoyproxy.envoy.extensions.filters.http.router.v3.Router;
import io.envoyproxy.envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager;
import io.envoyproxy.envoy.service.discovery.v3.DeltaDiscoveryRequest;
import io.envoyproxy.envoy.service.discovery.v3.DiscoveryRequest;
import io.grpc.Grpc;
import io.grpc.Server;
import io.grpc.TlsServerCredentials;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.TimeUnit;

/**
 * A control plane on java-control-plane that keeps a Snapshot for each value of node.metadata.env. Arguments: the port,
 * a properties file (env=HOST:PORT of its backend, looked at every second), a directory of tls.crt, tls.key and ca.crt,
 * and the port of the proxies' listener.
 */
final class ControlPlane {
  private static final JsonFormat.Parser JSON =
      JsonFormat.parser()
          .usingTypeRegistry(
              TypeRegistry.newBuilder()
                  .add(HttpConnectionManager.getDescriptor())
                  .add(Router.getDescriptor())
                  .build());

  /** Must read nothing of the node that no rule of the relay shows. */
  private static final SimpleCache<String> CACHE =
      new SimpleCache<>(
          node ->
              node.getMetadata().getFieldsOrDefault("env", com.google.protobuf.Value.getDefaultInstance())
                  .getStringValue());

  public static void main(String[] args) throws IOException, InterruptedException {
    Path backends = Path.of(args[1]);
    FileTime read = Files.getLastModifiedTime(backends);
    publish(backends, args[3]);
    File tls = new File(args[2]);
    V3DiscoveryServer discovery = new V3DiscoveryServer(new Log(), CACHE);
    Server server =
        Grpc.newServerBuilderForPort(
                Integer.parseInt(args[0]),
                TlsServerCredentials.newBuilder()
                    .keyManager(new File(tls, "tls.crt"), new File(tls, "tls.key"))
                    .trustManager(new File(tls, "ca.crt"))
                    .clientAuth(TlsServerCredentials.ClientAuth.REQUIRE)
                    .build())
            .addService(discovery.getAggregatedDiscoveryServiceImpl())
            // The relay pings every 30 s.
            .permitKeepAliveTime(15, TimeUnit.SECONDS)
            .permitKeepAliveWithoutCalls(true)
            .build()
            .start();
    System.out.println("listening " + server.getPort());
    while (!server.awaitTermination(1, TimeUnit.SECONDS)) {
      FileTime now = Files.getLastModifiedTime(backends);
      if (now.equals(read)) continue;
      read = now;
      publish(backends, args[3]);
    }
  }

  private static void publish(Path file, String port) throws IOException {
    Properties all = new Properties();
    try (var text = Files.newBufferedReader(file)) {
      all.load(text);
    }
    String version = Long.toString(System.currentTimeMillis());
    for (String env : all.stringPropertyNames()) {
      String[] backend = all.getProperty(env).split(":");
      CACHE.setSnapshot(
          env,
          Snapshot.create(
              List.of(parse(Cluster.newBuilder(), CLUSTER)),
              List.of(parse(ClusterLoadAssignment.newBuilder(), ENDPOINTS.formatted(backend[0], backend[1]))),
              List.of(parse(Listener.newBuilder(), LISTENER.formatted(port))),
              List.of(parse(RouteConfiguration.newBuilder(), ROUTES)),
              List.of(),
              version));
    }
  }

  @SuppressWarnings("unchecked")
  private static <T extends Message> T parse(Message.Builder builder, String json) throws IOException {
    JSON.merge(json, builder);
    return (T) builder.build();
  }

  private static final String CLUSTER =
      """
      {"name": "shop", "type": "EDS", "connectTimeout": "1s",
       "edsClusterConfig": {"edsConfig": {"ads": {}, "resourceApiVersion": "V3"}}}
      """;

  private static final String ENDPOINTS =
      """
      {"clusterName": "shop", "endpoints": [{"lbEndpoints": [{"endpoint": {"address":
        {"socketAddress": {"address": "%s", "portValue": %s}}}}]}]}
      """;

  private static final String ROUTES =
      """
      {"name": "web", "virtualHosts": [{"name": "all", "domains": ["*"],
       "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "shop"}}]}]}
      """;

  private static final String LISTENER =
      """
      {"name": "web", "address": {"socketAddress": {"address": "0.0.0.0", "portValue": %s}},
       "filterChains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typedConfig": {
         "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
         "statPrefix": "web",
         "rds": {"routeConfigName": "web", "configSource": {"ads": {}, "resourceApiVersion": "V3"}},
         "httpFilters": [{"name": "envoy.filters.http.router", "typedConfig": {
           "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}]}]}
      """;

  /** Says which nodes it has streams for: behind a relay, one for each env and not one for each proxy. */
  private static final class Log implements DiscoveryServerCallbacks {
    @Override
    public void onV3StreamRequest(long stream, DiscoveryRequest request) {}

    @Override
    public void onV3StreamDeltaRequest(long stream, DeltaDiscoveryRequest request) {
      if (request.getResponseNonce().isEmpty()) System.out.println("stream " + stream + " is of node " + request.getNode().getId());
    }
  }
}
