package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	// Resources come as JSON: what an Any in them may hold has to be linked in.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/on_demand/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/local_ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
)

var typeURLs = []string{
	resource.ListenerType, resource.RouteType, resource.ScopedRouteType, resource.VirtualHostType, resource.ClusterType,
	resource.EndpointType, resource.SecretType, resource.RuntimeType, resource.ExtensionConfigType,
}

// everybody is the key of the Snapshot for nodes that have none of their own.
const everybody = "*"

type store struct {
	cache   cache.Cache
	replace func(update) error
}

// update is the body of PUT /resources: from now on there is this and nothing else.
type update struct {
	Version   string            `json:"version"`
	Key       string            `json:"key"`       // whose Snapshot
	Resources []json.RawMessage `json:"resources"` // as JSON of an Any
}

type nodeKey string

func (by nodeKey) ID(node *corev3.Node) string {
	if by == "env" {
		return node.GetMetadata().GetFields()["env"].GetStringValue()
	}
	return everybody
}

func newStore(kind, key string, ordered bool) (*store, error) {
	switch kind {
	case "snapshot":
		// With ordered (its ads), requests that do not name the whole snapshot are left without an answer.
		var hash cache.NodeHash = nodeKey(key)
		if key == "id" {
			hash = cache.IDHash{} // what go-control-plane has for it
		}
		c := cache.NewSnapshotCache(ordered, hash, nil)
		return &store{c, func(u update) error { return replaceSnapshot(c, u) }}, nil
	case "linear":
		linears, caches := map[string]*cache.LinearCache{}, map[string]cache.Cache{}
		for _, url := range typeURLs {
			linears[url] = cache.NewLinearCache(url)
			caches[url] = linears[url]
		}
		mux := &cache.MuxCache{
			Classify:      func(r *cache.Request) string { return r.GetTypeUrl() },
			ClassifyDelta: func(r *cache.DeltaRequest) string { return r.GetTypeUrl() },
			Caches:        caches,
		}
		return &store{mux, func(u update) error { return replaceLinear(linears, u) }}, nil
	}
	return nil, fmt.Errorf("-cache %q: want snapshot or linear", kind)
}

func (s *store) put(w http.ResponseWriter, r *http.Request) {
	u := update{Key: everybody}
	if err := json.NewDecoder(r.Body).Decode(&u); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := s.replace(u); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func replaceSnapshot(c cache.SnapshotCache, u update) error {
	byType, err := parse(u.Resources)
	if err != nil {
		return err
	}
	snapshot, err := cache.NewSnapshot(u.Version, byType)
	if err != nil {
		return err
	}
	return c.SetSnapshot(context.Background(), u.Key, snapshot)
}

// replaceLinear changes only what differs: a LinearCache takes whatever it is given as a new version of it.
func replaceLinear(linears map[string]*cache.LinearCache, u update) error {
	byType, err := parse(u.Resources)
	if err != nil {
		return err
	}
	for url, linear := range linears {
		before := linear.GetResources()
		changed := map[string]types.Resource{}
		for _, r := range byType[url] {
			name := cache.GetResourceName(r)
			if old, ok := before[name]; !ok || !equal(old, r) {
				changed[name] = r
			}
			delete(before, name)
		}
		var gone []string
		for name := range before {
			gone = append(gone, name)
		}
		if len(changed) == 0 && len(gone) == 0 {
			continue
		}
		if err := linear.UpdateResources(changed, gone); err != nil {
			return err
		}
	}
	return nil
}

func equal(a, b types.Resource) bool {
	x, errX := cache.MarshalResource(a)
	y, errY := cache.MarshalResource(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

func parse(resources []json.RawMessage) (map[string][]types.Resource, error) {
	byType := map[string][]types.Resource{}
	for _, text := range resources {
		var packed anypb.Any
		if err := protojson.Unmarshal(text, &packed); err != nil {
			return nil, fmt.Errorf("%w in %s", err, text)
		}
		message, err := packed.UnmarshalNew()
		if err != nil {
			return nil, err
		}
		byType[packed.GetTypeUrl()] = append(byType[packed.GetTypeUrl()], message)
	}
	return byType, nil
}
