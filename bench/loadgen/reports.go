package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstats "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	"fanoutbench/internal/proc"
	"fanoutbench/internal/result"
)

// No two of so many reports that follow each other are the same.
const reportVariants = 16

// reporting is what clients of LRS do: each reports once in an interval, the clients spread evenly over it.
type reporting struct {
	run      *run
	interval time.Duration
	reports  [reportVariants][]byte
	requests [reportVariants]uint64 // that a report is about
	told     atomic.Int64           // clients that know what they are asked for

	began  atomic.Int64 // by the tally's clock; 0: nobody reports yet
	sent   atomic.Int64
	issued atomic.Uint64
}

func newReporting(r *run) *reporting {
	p := &reporting{run: r, interval: r.options.interval}
	for v := range p.reports {
		request := &loadstats.LoadStatsRequest{}
		for i := range r.options.spec.Resources {
			issued, failed := uint64((i*7+v*13)%200+1), uint64((i+v)%10/9)
			p.requests[v] += issued
			request.ClusterStats = append(request.ClusterStats, &endpointv3.ClusterStats{
				ClusterName:        r.options.spec.Name(0, i),
				ClusterServiceName: fmt.Sprintf("service-%05d", i),
				LoadReportInterval: durationpb.New(p.interval),
				UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{
					Locality:                &corev3.Locality{Region: "eu-west-1", Zone: "eu-west-1b"},
					TotalSuccessfulRequests: issued - failed,
					TotalErrorRequests:      failed,
					TotalRequestsInProgress: uint64((i + v) % 4),
					TotalIssuedRequests:     issued,
				}},
			})
		}
		p.reports[v] = mustMarshal(request)
	}
	return p
}

// measureReports is a run in which an "update" is a report.
func (r *run) measureReports() error {
	o, m := r.options, &r.result
	r.tally = newTally(0, 0)
	r.reporting = newReporting(r)
	start := proc.RSS(o.pid)
	m.Streams, m.RSSStartMB = o.streams, float64(start)/1e6
	t, err := newEpoll(o.addr, r.reporting.send)
	if err != nil {
		return err
	}
	r.transport = t
	defer t.close()
	cpu, began := proc.CPU(o.pid), time.Now()
	r.connect()
	if !r.wait(func() bool { return r.reporting.told.Load() >= int64(o.streams) }) {
		return fmt.Errorf("%d of %d clients were asked for reports: %v", r.reporting.told.Load(), o.streams, r.tally.checks.FirstErrors)
	}
	m.Storms = []result.Storm{{Seconds: time.Since(began).Seconds(), CPUPerStream: micros(proc.CPU(o.pid)-cpu) / float64(o.streams)}}
	time.Sleep(o.idle)
	perStream := func() float64 { return float64(proc.RSS(o.pid)-start) / 1024 / float64(o.streams) }
	m.KBStreamIdle = perStream()
	r.reporting.began.Store(r.tally.now())
	r.reporting.await(o.warm)
	before, err := r.used()
	if err != nil {
		return err
	}
	r.reporting.await(o.warm + o.updates)
	after, err := r.used()
	if err != nil {
		return err
	}
	m.Updates, m.Delivered, m.CPUSeconds = o.updates, after.sent-before.sent, (after.cpu - before.cpu).Seconds()
	m.CPUPerUpdate = m.CPUSeconds * 1e6 / float64(m.Delivered)
	m.MB = float64(after.out-before.out) / 1e6
	m.BytesPerUpd, m.CPUPerMB = m.MB*1e6/float64(m.Delivered), m.CPUSeconds*1e6/m.MB
	m.Plane = result.Plane{Seconds: after.at.Sub(before.at).Seconds(), CPUSeconds: (after.planeCPU - before.planeCPU).Seconds(),
		Reports: after.Reports - before.Reports, Bytes: after.Bytes - before.Bytes}
	m.KBStreamAfter, m.RSSAfterMB = perStream(), float64(proc.RSS(o.pid))/1e6
	return r.checkSums()
}

// use is what everybody has used so far.
type use struct {
	result.Load
	at            time.Time
	cpu, planeCPU time.Duration
	sent, out     int64
}

func (r *run) used() (use, error) {
	load, err := r.load()
	return use{load, time.Now(), proc.CPU(r.options.pid), proc.CPU(r.options.plane), r.reporting.sent.Load(), r.tally.counts().sent}, err
}

func (r *run) load() (load result.Load, err error) {
	b, err := r.call(http.MethodGet, "/load")
	if err == nil {
		err = json.Unmarshal(b, &load)
	}
	return load, err
}

// checkSums waits until the control plane has heard of every request, of each once.
func (r *run) checkSums() error {
	want := r.reporting.issued.Load()
	if r.options.discards {
		want = 0
	}
	var load result.Load
	var err error
	for deadline := time.Now().Add(r.options.interval + r.options.timeout); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if load, err = r.load(); err != nil {
			return err
		}
		if load.Issued >= want {
			break
		}
	}
	r.tally.mu.Lock()
	defer r.tally.mu.Unlock()
	checks := &r.tally.checks
	if load.Issued != want {
		checks.WrongSums = int64(max(want, load.Issued) - min(want, load.Issued))
		checks.FirstErrors = append(checks.FirstErrors, fmt.Sprintf("the control plane heard of %d requests, not %d", load.Issued, want))
	}
	checks.Responses, checks.Acks = r.reporting.told.Load(), r.reporting.told.Load() // nothing is acknowledged
	r.result.Checks = *checks
	return nil
}

// await: so many rounds of reports have been sent.
func (p *reporting) await(rounds int) {
	for p.sent.Load() < int64(rounds*p.run.options.streams) {
		time.Sleep(time.Millisecond)
	}
}

// response is what a client is asked for.
func (p *reporting) response(b []byte) error {
	for rest := b; len(rest) > 0; {
		n, kind, size := protowire.ConsumeField(rest)
		if size < 0 {
			return protowire.ParseError(size)
		}
		const sendAllClusters = 4
		if n == sendAllClusters && kind == protowire.VarintType {
			p.told.Add(1)
			return nil
		}
		rest = rest[size:]
	}
	return errors.New("asked for less than all clusters")
}

// send is called by the transport again and again, and sends what is due.
func (p *reporting) send(e *epoll) {
	began := p.began.Load()
	if began == 0 {
		return
	}
	o, sent := p.run.options, p.sent.Load()
	due := int64(float64(p.run.tally.now()-began) / float64(p.interval) * float64(o.streams))
	for due = min(due, int64((o.warm+o.updates)*o.streams)); sent < due; sent++ {
		id, variant := int(sent)%o.streams, sent%reportVariants
		c := p.run.clients[id]
		c.session.send(c.node, p.reports[variant])
		p.run.tally.wrote(len(c.node) + len(p.reports[variant]))
		p.issued.Add(p.requests[variant])
		e.write(id)
	}
	p.sent.Store(sent)
}
