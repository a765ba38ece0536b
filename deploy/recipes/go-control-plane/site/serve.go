package site

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"math"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// Publish puts what the backends say into a cache; it is called at the start and at each SIGHUP.
type Publish func(all Backends, listenerPort uint) error

// Run serves a cache over ADS until it fails. It reads the command line.
func Run(served cache.Cache, publish Publish) {
	listen := flag.String("listen", "0.0.0.0:18000", "address of the xDS server")
	file := flag.String("backends", "backends.json", "JSON file: group to HOST:PORT; read again at SIGHUP")
	port := flag.Uint("listener-port", 8080, "port of the proxies' listener web")
	certificates := flag.String("tls", "", "directory of tls.crt, tls.key and ca.crt; empty: plaintext")
	flag.Parse()
	if err := run(served, publish, *listen, *file, *port, *certificates); err != nil {
		fmt.Fprintln(os.Stderr, "control plane:", err)
		os.Exit(1)
	}
}

func run(served cache.Cache, publish Publish, listen, file string, port uint, certificates string) error {
	read := func() error {
		all, err := ReadBackends(file)
		if err != nil {
			return err
		}
		return publish(all, port)
	}
	if err := read(); err != nil {
		return err
	}
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGHUP)
	go func() {
		for range changed {
			if err := read(); err != nil {
				fmt.Fprintln(os.Stderr, "keeping what was published before:", err)
			}
		}
	}()

	options := []grpc.ServerOption{
		// The relay has one connection, and a stream or two on it for each parameter set.
		grpc.MaxConcurrentStreams(math.MaxUint32),
		// It pings every 30 s (ads.keepalive).
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 15 * time.Second, PermitWithoutStream: true}),
	}
	if certificates != "" {
		config, err := mutualTLS(certificates)
		if err != nil {
			return err
		}
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	g := grpc.NewServer(options...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, server.NewServer(context.Background(), served, log{}))
	xds, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println("listening", xds.Addr())
	return g.Serve(xds)
}

// mutualTLS lets in only who has a certificate of the authority, and reads its own anew for each connection.
func mutualTLS(directory string) (*tls.Config, error) {
	ca, err := os.ReadFile(filepath.Join(directory, "ca.crt"))
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s has no certificate in ca.crt", directory)
	}
	return &tls.Config{
		ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs:  authorities,
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key"))
			return &pair, err
		},
	}, nil
}

// log says which nodes it has streams for: behind a relay, one for each group and not one for each proxy.
type log struct{ server.CallbackFuncs }

func (log) OnStreamDeltaRequest(stream int64, request *discoveryv3.DeltaDiscoveryRequest) error {
	if request.GetNode() != nil {
		fmt.Println("stream", stream, "is of node", request.GetNode().GetId())
	}
	if request.GetErrorDetail() != nil {
		fmt.Println("stream", stream, "rejects", request.GetTypeUrl(), request.GetErrorDetail().GetMessage())
	}
	return nil
}

func (log) OnDeltaStreamClosed(stream int64, _ *corev3.Node) {
	fmt.Println("stream", stream, "is closed")
}
