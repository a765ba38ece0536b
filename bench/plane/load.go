package main

import (
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	loadstats "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"fanoutbench/internal/result"
)

// loads is a server of load reports (LRS) as a control plane in Go would have it: go-control-plane has the generated
// service, and nothing behind it. Each report is decoded, and its counters are added up by cluster and locality.
type loads struct {
	interval time.Duration
	bytes    atomic.Int64 // read from all connections

	mu      sync.Mutex
	reports int64
	issued  uint64
	sums    map[loadKey]*loadSum
}

type loadKey struct{ cluster, service, region, zone, subZone string }

type loadSum struct{ success, failed, issued uint64 }

func (l *loads) StreamLoadStats(stream grpc.BidiStreamingServer[loadstats.LoadStatsRequest, loadstats.LoadStatsResponse]) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.Send(&loadstats.LoadStatsResponse{SendAllClusters: true, LoadReportingInterval: durationpb.New(l.interval)}); err != nil {
		return err
	}
	for {
		report, err := stream.Recv()
		if err != nil {
			return err
		}
		l.add(report)
	}
}

func (l *loads) add(report *loadstats.LoadStatsRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reports++
	for _, c := range report.GetClusterStats() {
		for _, at := range c.GetUpstreamLocalityStats() {
			k := loadKey{c.GetClusterName(), c.GetClusterServiceName(), at.GetLocality().GetRegion(), at.GetLocality().GetZone(), at.GetLocality().GetSubZone()}
			s := l.sums[k]
			if s == nil {
				s = &loadSum{}
				l.sums[k] = s
			}
			s.success += at.GetTotalSuccessfulRequests()
			s.failed += at.GetTotalErrorRequests()
			s.issued += at.GetTotalIssuedRequests()
			l.issued += at.GetTotalIssuedRequests()
		}
	}
}

func (l *loads) get(w http.ResponseWriter, _ *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = json.NewEncoder(w).Encode(result.Load{Reports: l.reports, Issued: l.issued, Bytes: l.bytes.Load()}) // a client that has gone
}

// counted is a listener whose connections count what they read.
type counted struct {
	net.Listener
	bytes *atomic.Int64
}

func (c counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	return countedConn{conn, c.bytes}, err
}

type countedConn struct {
	net.Conn
	bytes *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}
