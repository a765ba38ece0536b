import type { DescFile } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { AdminService } from '../../src/gen/distributary/admin/v1/admin_pb.ts';
import { AggregatedDiscoveryService } from '../../src/gen/envoy/service/discovery/v3/ads_pb.ts';
import { LoadReportingService } from '../../src/gen/envoy/service/load_stats/v3/lrs_pb.ts';
import { ClientStatusDiscoveryService } from '../../src/gen/envoy/service/status/v3/csds_pb.ts';
import { envoyRegistry } from '../../src/wire/registry.ts';

/** With all files that they import. */
function filesOf(files: readonly DescFile[]): ReadonlySet<string> {
  return new Set(files.flatMap((file) => [file.name, ...filesOf(file.dependencies)]));
}

describe('the generated code', () => {
  it('has no annotations: each of its files would read descriptor.proto for them, at each start', () => {
    const services = [
      AdminService,
      AggregatedDiscoveryService,
      ClientStatusDiscoveryService,
      LoadReportingService,
    ];
    const files = [...filesOf(services.map(({ file }) => file))];
    expect(files).to.include('envoy/config/core/v3/base');
    expect(files.filter((name) => /annotations|validate|google\/(api|protobuf\/descriptor)/.test(name))).to.be
      .empty;
  });

  it('leaves them in the image that is read at run time: one says which fields are secrets', () => {
    expect(envoyRegistry().getExtension('udpa.annotations.sensitive')?.number).to.be.a('number');
  });
});
