// Command linear has a LinearCache for each type, and the same for every proxy: what group everybody gets.
package main

import (
	"fmt"

	"example.com/control-planes/site"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

const everybody = "everybody"

func main() {
	linear := map[resource.Type]*cache.LinearCache{}
	caches := map[string]cache.Cache{}
	for _, url := range []string{
		resource.ListenerType, resource.RouteType, resource.ClusterType, resource.EndpointType,
	} {
		linear[url] = cache.NewLinearCache(url)
		caches[url] = linear[url]
	}
	all := &cache.MuxCache{
		Classify:      func(r *cache.Request) string { return r.GetTypeUrl() },
		ClassifyDelta: func(r *cache.DeltaRequest) string { return r.GetTypeUrl() },
		Caches:        caches,
	}
	site.Run(all, func(backends site.Backends, port uint) error {
		backend, ok := backends[everybody]
		if !ok {
			return fmt.Errorf("the backends lack %q", everybody)
		}
		byType, err := site.Resources(everybody, backend, port)
		if err != nil {
			return err
		}
		for url, resources := range byType {
			byName := map[string]types.Resource{}
			for _, r := range resources {
				byName[cache.GetResourceName(r)] = r
			}
			linear[url].SetResources(byName)
		}
		return nil
	})
}
