// Command mux decides by node for all types but EDS, which is the same for everybody: endpoints change often, and a
// LinearCache sends only those that changed.
package main

import (
	"example.com/control-planes/site"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

type byEnv struct{}

func (byEnv) ID(node *corev3.Node) string {
	return node.GetMetadata().GetFields()["env"].GetStringValue()
}

const (
	perNode = "per node"
	shared  = "shared"
)

func cacheOf(url string) string {
	if url == resource.EndpointType {
		return shared
	}
	return perNode
}

func main() {
	snapshots := cache.NewSnapshotCache(false, byEnv{}, nil)
	endpoints := cache.NewLinearCache(resource.EndpointType)
	all := &cache.MuxCache{
		Classify:      func(r *cache.Request) string { return cacheOf(r.GetTypeUrl()) },
		ClassifyDelta: func(r *cache.DeltaRequest) string { return cacheOf(r.GetTypeUrl()) },
		Caches:        map[string]cache.Cache{perNode: snapshots, shared: endpoints},
	}
	site.Run(all, func(backends site.Backends, port uint) error {
		byName := map[string]types.Resource{}
		for group, backend := range backends {
			assignment, err := site.Endpoints(group, backend)
			if err != nil {
				return err
			}
			byName[group] = assignment
		}
		// First what clusters refer to.
		endpoints.SetResources(byName)
		return site.SetSnapshots(snapshots, backends, port, resource.EndpointType)
	})
}
