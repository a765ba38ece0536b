package main

import (
	"sync"
	"time"

	loadstats "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
)

// loads are the sums of all load reports, by cluster.
type loads struct {
	interval time.Duration

	mu       sync.Mutex
	clusters map[string]*load
}

type load struct {
	Issued     uint64             `json:"issued"`
	Succeeded  uint64             `json:"succeeded"`
	Failed     uint64             `json:"failed"`
	InProgress uint64             `json:"inProgress"` // in the last report
	Dropped    uint64             `json:"dropped"`
	Categories map[string]uint64  `json:"categories"` // of what was dropped
	Metrics    map[string]*metric `json:"metrics"`    // cpu_utilization and its like under these names
}

type metric struct {
	Requests uint64  `json:"requests"`
	Sum      float64 `json:"sum"`
}

func (l *loads) StreamLoadStats(stream grpc.BidiStreamingServer[loadstats.LoadStatsRequest, loadstats.LoadStatsResponse]) error {
	asked := &loadstats.LoadStatsResponse{SendAllClusters: true, LoadReportingInterval: durationpb.New(l.interval)}
	if err := stream.Send(asked); err != nil {
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
	for _, stats := range report.GetClusterStats() {
		sum := l.clusters[stats.GetClusterName()]
		if sum == nil {
			sum = &load{Categories: map[string]uint64{}, Metrics: map[string]*metric{}}
			l.clusters[stats.GetClusterName()] = sum
		}
		sum.Dropped += stats.GetTotalDroppedRequests()
		for _, of := range stats.GetDroppedRequests() {
			sum.Categories[of.GetCategory()] += of.GetDroppedCount()
		}
		sum.InProgress = 0
		for _, at := range stats.GetUpstreamLocalityStats() {
			sum.Issued += at.GetTotalIssuedRequests()
			sum.Succeeded += at.GetTotalSuccessfulRequests()
			sum.Failed += at.GetTotalErrorRequests()
			sum.InProgress += at.GetTotalRequestsInProgress()
			for _, of := range at.GetLoadMetricStats() {
				sum.measured(of.GetMetricName(), of.GetNumRequestsFinishedWithMetric(), of.GetTotalMetricValue())
			}
			if cpu := at.GetCpuUtilization(); cpu != nil {
				sum.measured("cpu_utilization", cpu.GetNumRequestsFinishedWithMetric(), cpu.GetTotalMetricValue())
			}
		}
	}
}

func (l *load) measured(name string, requests uint64, value float64) {
	if l.Metrics[name] == nil {
		l.Metrics[name] = &metric{}
	}
	l.Metrics[name].Requests += requests
	l.Metrics[name].Sum += value
}
