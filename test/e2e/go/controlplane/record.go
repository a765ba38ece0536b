package main

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// mostRequests bounds what is kept of a test's requests.
const mostRequests = 200_000

// record is what the control plane was asked, in order.
type record struct {
	server.CallbackFuncs `json:"-"`
	locators             bool
	loads                *loads

	mu       sync.Mutex
	Opened   int       `json:"opened"` // streams, since the start
	Open     int       `json:"open"`   // streams, now
	Requests []request `json:"requests"`

	Loads map[string]*load `json:"loads"`
}

type request struct {
	Stream          int64             `json:"stream"`
	Protocol        string            `json:"protocol"` // sotw or delta
	Type            string            `json:"type"`
	Node            json.RawMessage   `json:"node,omitempty"`
	Names           []string          `json:"names"` // delta: subscribe
	Unsubscribe     []string          `json:"unsubscribe"`
	Locators        []locator         `json:"locators"`
	Version         string            `json:"version"`
	Nonce           string            `json:"nonce"`
	Error           string            `json:"error"` // of a NACK
	Nack            bool              `json:"nack"`
	InitialVersions map[string]string `json:"initialVersions,omitempty"`
}

type locator struct {
	Name       string            `json:"name"`
	Parameters map[string]string `json:"parameters"`
}

func newRecord(locators bool) *record {
	sums := &loads{clusters: map[string]*load{}}
	return &record{locators: locators, loads: sums, Loads: sums.clusters, Requests: []request{}}
}

func (r *record) get(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loads.mu.Lock()
	defer r.loads.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(r)
}

func (r *record) OnStreamOpen(context.Context, int64, string) error      { return r.opened() }
func (r *record) OnDeltaStreamOpen(context.Context, int64, string) error { return r.opened() }
func (r *record) OnStreamClosed(int64, *corev3.Node)                     { r.closed() }
func (r *record) OnDeltaStreamClosed(int64, *corev3.Node)                { r.closed() }

func (r *record) opened() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Opened++
	r.Open++
	return nil
}

func (r *record) closed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Open--
}

func (r *record) OnStreamRequest(stream int64, q *discovery.DiscoveryRequest) error {
	r.add(request{
		Stream: stream, Protocol: "sotw", Type: q.GetTypeUrl(), Names: q.GetResourceNames(),
		Locators: locators(q.GetResourceLocators()), Version: q.GetVersionInfo(), Nonce: q.GetResponseNonce(),
	}, q.GetNode(), q.GetErrorDetail())
	if r.locators {
		q.ResourceNames = append(q.ResourceNames, names(q.GetResourceLocators())...)
	}
	return nil
}

func (r *record) OnStreamDeltaRequest(stream int64, q *discovery.DeltaDiscoveryRequest) error {
	r.add(request{
		Stream: stream, Protocol: "delta", Type: q.GetTypeUrl(), Names: q.GetResourceNamesSubscribe(),
		Unsubscribe: slices.Concat(q.GetResourceNamesUnsubscribe(), names(q.GetResourceLocatorsUnsubscribe())),
		Locators:    locators(q.GetResourceLocatorsSubscribe()), Nonce: q.GetResponseNonce(),
		InitialVersions: q.GetInitialResourceVersions(),
	}, q.GetNode(), q.GetErrorDetail())
	if r.locators {
		q.ResourceNamesSubscribe = append(q.ResourceNamesSubscribe, names(q.GetResourceLocatorsSubscribe())...)
		q.ResourceNamesUnsubscribe = append(q.ResourceNamesUnsubscribe, names(q.GetResourceLocatorsUnsubscribe())...)
	}
	return nil
}

func (r *record) add(q request, node *corev3.Node, nack *status.Status) {
	if node != nil {
		q.Node, _ = protojson.Marshal(node)
	}
	q.Nack, q.Error = nack != nil, nack.GetMessage()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.Requests) < mostRequests {
		r.Requests = append(r.Requests, q)
	}
}

func locators(from []*discovery.ResourceLocator) []locator {
	var all []locator
	for _, l := range from {
		all = append(all, locator{l.GetName(), l.GetDynamicParameters()})
	}
	return all
}

func names(from []*discovery.ResourceLocator) []string {
	var all []string
	for _, l := range from {
		all = append(all, l.GetName())
	}
	return all
}
