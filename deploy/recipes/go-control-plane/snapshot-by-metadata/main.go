// Command snapshot-by-metadata keeps a Snapshot for each value of node.metadata.env.
package main

import (
	"example.com/control-planes/site"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
)

// byEnv must read nothing of the node that no rule of the relay shows.
type byEnv struct{}

func (byEnv) ID(node *corev3.Node) string {
	return node.GetMetadata().GetFields()["env"].GetStringValue()
}

func main() {
	snapshots := cache.NewSnapshotCache(false, byEnv{}, nil)
	site.Run(snapshots, func(all site.Backends, port uint) error {
		return site.SetSnapshots(snapshots, all, port)
	})
}
