package site

import (
	"context"
	"strconv"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

// SetSnapshots gives each group its Snapshot. Those types are left out which another cache has.
func SetSnapshots(snapshots cache.SnapshotCache, all Backends, port uint, without ...resource.Type) error {
	// A version that is never used again, over restarts too.
	version := strconv.FormatInt(time.Now().UnixNano(), 10)
	for group, backend := range all {
		resources, err := Resources(group, backend, port)
		if err != nil {
			return err
		}
		for _, elsewhere := range without {
			delete(resources, elsewhere)
		}
		snapshot, err := cache.NewSnapshot(version, resources)
		if err != nil {
			return err
		}
		if err := snapshots.SetSnapshot(context.Background(), group, snapshot); err != nil {
			return err
		}
	}
	for _, known := range snapshots.GetStatusKeys() {
		if _, ok := all[known]; !ok {
			snapshots.ClearSnapshot(known)
		}
	}
	return nil
}
