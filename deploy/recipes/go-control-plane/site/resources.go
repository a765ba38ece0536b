// Package site has what the control planes beside it have in common: a small site, and a server for it.
package site

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Backends says where each group of proxies sends its requests: group to HOST:PORT.
type Backends map[string]string

// ReadBackends reads a JSON file such as {"prod": "10.0.0.1:8080", "test": "10.0.0.2:8080"}.
func ReadBackends(path string) (Backends, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all Backends
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// Resources is what the proxies of one group get: listener web, its routes, cluster shop and its endpoints.
func Resources(group, backend string, port uint) (map[resource.Type][]types.Resource, error) {
	listener, err := webListener(uint32(port))
	if err != nil {
		return nil, err
	}
	assignment, err := Endpoints(group, backend)
	if err != nil {
		return nil, err
	}
	return map[resource.Type][]types.Resource{
		resource.ListenerType: {listener},
		resource.RouteType:    {webRoutes()},
		resource.ClusterType:  {shopCluster(group)},
		resource.EndpointType: {assignment},
	}, nil
}

// Endpoints of a group. EDS knows them by the group's name, which cluster shop has as its service_name.
func Endpoints(group, backend string) (*endpointv3.ClusterLoadAssignment, error) {
	host, text, err := net.SplitHostPort(backend)
	if err != nil {
		return nil, fmt.Errorf("backend of %s: %w", group, err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("backend of %s: %w", group, err)
	}
	endpoint := &endpointv3.Endpoint{Address: socketAddress(host, uint32(port))}
	return &endpointv3.ClusterLoadAssignment{
		ClusterName: group,
		Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: endpoint},
		}}}},
	}, nil
}

func webListener(port uint32) (*listenerv3.Listener, error) {
	router, err := anypb.New(&routerv3.Router{})
	if err != nil {
		return nil, err
	}
	manager, err := anypb.New(&hcmv3.HttpConnectionManager{
		StatPrefix: "web",
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{
			Rds: &hcmv3.Rds{RouteConfigName: "web", ConfigSource: ads()},
		},
		HttpFilters: []*hcmv3.HttpFilter{{
			Name:       "envoy.filters.http.router",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router},
		}},
	})
	if err != nil {
		return nil, err
	}
	filter := &listenerv3.Filter{
		Name:       "envoy.filters.network.http_connection_manager",
		ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: manager},
	}
	return &listenerv3.Listener{
		Name:         "web",
		Address:      socketAddress("0.0.0.0", port),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{filter}}},
	}, nil
}

func webRoutes() *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{
		Name: "web",
		VirtualHosts: []*routev3.VirtualHost{{
			Name:    "all",
			Domains: []string{"*"},
			Routes: []*routev3.Route{{
				Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "shop"},
				}},
			}},
		}},
	}
}

func shopCluster(group string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 "shop",
		ConnectTimeout:       durationpb.New(time.Second),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads(), ServiceName: group},
	}
}

// ads: proxies take resources from the server that they have the resource with the reference from, which is the relay.
func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

func socketAddress(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}
