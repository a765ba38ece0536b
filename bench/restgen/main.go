// restgen is a fleet of clients that poll over REST-JSON, each on a connection of its own that stays open. Every client
// polls once in each round. It checks every answer, measures what a subject process spent on the polls, and prints a
// result.Run in which an "update" is a poll.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"fanoutbench/internal/payload"
	"fanoutbench/internal/proc"
	"fanoutbench/internal/result"
)

// Clients poll at so many connections at once; the others wait for their turn, as timers would have it.
const atOnce = 64

type options struct {
	spec          payload.Spec
	addr, control string
	pid, pollers  int
	node          int
	warm, rounds  int
	unchanged     bool
	settle        time.Duration
	timeout       time.Duration
}

func parse() (options, error) {
	var o options
	o.spec.Flags(flag.CommandLine)
	flag.StringVar(&o.addr, "addr", "", "host:port of the subject's REST listener")
	flag.StringVar(&o.control, "control", "", "host:port of the control port through which updates are injected")
	flag.IntVar(&o.pid, "pid", 0, "the subject's process: its CPU and memory, and its descendants', are measured")
	flag.IntVar(&o.pollers, "n", 2000, "clients")
	flag.IntVar(&o.node, "node", 0, "size in bytes of the node, as JSON; 0: a small one")
	flag.IntVar(&o.warm, "warm", 1, "rounds before measuring")
	flag.IntVar(&o.rounds, "updates", 8, "rounds measured")
	flag.BoolVar(&o.unchanged, "unchanged", false, "nothing changes between the rounds; else one resource before each")
	flag.DurationVar(&o.settle, "settle", 200*time.Millisecond, "silence around a CPU reading")
	flag.DurationVar(&o.timeout, "timeout", 30*time.Second, "longest wait for a round")
	flag.Parse()
	if o.addr == "" || o.control == "" || o.pollers < 1 || o.spec.Classes != 1 || o.spec.Type != "cds" {
		return o, errors.New("-addr and -control are required, -n at least 1, and the resources are cds of one class")
	}
	return o, o.spec.Check()
}

type run struct {
	options options
	pollers []*poller
	result  result.Run
	mu      sync.Mutex
}

func main() {
	o, err := parse()
	if err == nil {
		r := &run{options: o}
		if err = r.measure(); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(&r.result)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "restgen:", err)
		os.Exit(1)
	}
}

func (r *run) measure() error {
	o, m := r.options, &r.result
	seq, err := r.call(http.MethodGet, "/seq")
	if err != nil {
		return err
	}
	for i := range o.pollers {
		r.pollers = append(r.pollers, newPoller(o, i))
	}
	defer r.close()
	start := proc.RSS(o.pid)
	m.Streams, m.RSSStartMB = o.pollers, float64(start)/1e6
	// A relay may not know everything yet when it is asked for the first time.
	if err := r.awaits(seq); err != nil {
		return err
	}
	cpu, began := proc.CPU(o.pid), time.Now()
	r.round(seq, http.StatusOK)
	m.Storms = []result.Storm{{Seconds: time.Since(began).Seconds(),
		CPUPerStream: micros(proc.CPU(o.pid)-cpu) / float64(o.pollers)}}
	perPoller := func() float64 { return float64(proc.RSS(o.pid)-start) / 1024 / float64(o.pollers) }
	m.KBStreamIdle = perPoller()
	for range o.warm {
		if seq, err = r.next(seq); err != nil {
			return err
		}
	}
	before, bytes := m.Checks.Responses, m.MB
	time.Sleep(o.settle)
	cpu = proc.CPU(o.pid)
	for range o.rounds {
		if seq, err = r.next(seq); err != nil {
			return err
		}
	}
	time.Sleep(o.settle)
	used := proc.CPU(o.pid) - cpu
	m.Updates, m.CPUSeconds, m.Delivered = o.rounds, used.Seconds(), m.Checks.Responses-before
	m.MB -= bytes
	m.BytesPerUpd = m.MB * 1e6 / float64(m.Delivered)
	m.CPUPerUpdate = micros(used) / float64(m.Delivered)
	if m.MB > 0 {
		m.CPUPerMB = micros(used) / m.MB
	}
	m.KBStreamAfter, m.RSSAfterMB = perPoller(), float64(proc.RSS(o.pid))/1e6
	return nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// next is one round: of what is unchanged, or after a change.
func (r *run) next(seq uint64) (uint64, error) {
	if r.options.unchanged {
		r.round(seq, http.StatusNotModified)
		return seq, nil
	}
	seq, err := r.call(http.MethodPost, "/update")
	if err == nil {
		err = r.awaits(seq)
	}
	if err == nil {
		r.round(seq, http.StatusOK)
	}
	return seq, err
}

// awaits the subject's knowledge of an update, with a client that is none of the fleet.
func (r *run) awaits(seq uint64) error {
	probe := newPoller(r.options, r.options.pollers)
	defer probe.close()
	for deadline := time.Now().Add(r.options.timeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		a, err := probe.poll()
		if err == nil && a.status == http.StatusOK && a.seq == seq {
			return nil
		}
	}
	return fmt.Errorf("update %d did not arrive in %v", seq, r.options.timeout)
}

func (r *run) round(seq uint64, status int) {
	next := make(chan *poller)
	var working sync.WaitGroup
	for range min(atOnce, len(r.pollers)) {
		working.Go(func() {
			for p := range next {
				a, err := p.poll()
				r.check(a, err, seq, status)
			}
		})
	}
	for _, p := range r.pollers {
		next <- p
	}
	close(next)
	working.Wait()
}

func (r *run) check(a answer, err error, seq uint64, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	checks := &r.result.Checks
	checks.Responses++
	checks.Acks++ // the next poll names the version
	r.result.MB += float64(a.bytes) / 1e6
	switch {
	case err == nil && a.status != status:
		err = fmt.Errorf("status %d, not %d: %s", a.status, status, a.text)
		checks.Broken++
	case err != nil:
		checks.Broken++
	case status == http.StatusOK && a.seq != seq:
		err = fmt.Errorf("update %d, not %d", a.seq, seq)
		checks.Late++
	case status == http.StatusOK && a.resources != r.options.spec.Resources:
		err = fmt.Errorf("%d resources, not %d", a.resources, r.options.spec.Resources)
		checks.Incomplete++
	}
	if err != nil && len(checks.FirstErrors) < 5 {
		checks.FirstErrors = append(checks.FirstErrors, err.Error())
	}
}

func (r *run) close() {
	for _, p := range r.pollers {
		p.close()
	}
}

// call asks the control port, which answers with the number of the last update.
func (r *run) call(method, path string) (uint64, error) {
	req, err := http.NewRequest(method, "http://"+r.options.control+path, nil)
	if err != nil {
		return 0, err
	}
	resp, err := (&http.Client{Timeout: r.options.timeout}).Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(b), 10, 64)
}
