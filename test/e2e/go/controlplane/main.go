// Command controlplane is a control plane on go-control-plane for the tests against real components.
//
//	-cache snapshot  one Snapshot per node, found by -key
//	-cache linear    one LinearCache per type, for everybody
//
// Its control port takes resources (PUT /resources) and tells what it was asked (GET /stats).
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address of the xDS server")
	control := flag.String("control", "127.0.0.1:0", "address of the control port")
	kind := flag.String("cache", "snapshot", "snapshot or linear")
	key := flag.String("key", "one", "what a Snapshot is kept by: one (for all nodes), id, or env (node.metadata.env)")
	locators := flag.Bool("locators", false, "read resource_locators as plain names")
	ordered := flag.Bool("ordered", false, "the SnapshotCache's own flag ads: types in order, and no answer to less than the snapshot has")
	ads := flag.Bool("ads", true, "serve ADS beside the services of single types")
	load := flag.Duration("load", 0, "take load reports of all clusters, so often; 0: the service is not there")
	hold := flag.Bool("hold", false, "serve xDS from the first resources on: until then whoever connects waits")
	flag.Parse()
	if err := run(*listen, *control, *kind, *key, *ordered, *locators, *ads, *load, *hold); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func run(listen, control, kind, key string, ordered, locators, ads bool, load time.Duration, hold bool) error {
	store, err := newStore(kind, key, ordered)
	if err != nil {
		return err
	}
	seen := newRecord(locators)
	g := grpc.NewServer(grpc.MaxConcurrentStreams(math.MaxUint32), grpc.MaxRecvMsgSize(64<<20))
	s := server.NewServer(context.Background(), store.cache, seen)
	if ads {
		discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
	}
	listenerv3.RegisterListenerDiscoveryServiceServer(g, s)
	routev3.RegisterRouteDiscoveryServiceServer(g, s)
	clusterv3.RegisterClusterDiscoveryServiceServer(g, s)
	endpointv3.RegisterEndpointDiscoveryServiceServer(g, s)
	secretv3.RegisterSecretDiscoveryServiceServer(g, s)

	if load > 0 {
		seen.loads.interval = load
		loadstatsv3.RegisterLoadReportingServiceServer(g, seen.loads)
	}

	xds, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	admin, err := net.Listen("tcp", control)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	first := make(chan struct{})
	var once sync.Once
	mux.HandleFunc("PUT /resources", func(w http.ResponseWriter, r *http.Request) {
		store.put(w, r)
		once.Do(func() { close(first) })
	})
	mux.HandleFunc("GET /stats", seen.get)
	fmt.Printf("listening xds %s\n", xds.Addr())
	fmt.Printf("listening control %s\n", admin.Addr())
	failed := make(chan error, 2)
	go func() { failed <- http.Serve(admin, mux) }()
	go func() {
		if hold {
			<-first
		}
		failed <- g.Serve(xds)
	}()
	return <-failed
}
