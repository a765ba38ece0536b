// Command snapshot-by-id keeps a Snapshot for each node id, which is go-control-plane's default.
package main

import (
	"example.com/control-planes/site"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
)

func main() {
	snapshots := cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	site.Run(snapshots, func(all site.Backends, port uint) error {
		return site.SetSnapshots(snapshots, all, port)
	})
}
