import type { Subject } from './subject.ts';
import { disk } from './subjects/disk.ts';
import { requests } from './subjects/requests.ts';
import { responses } from './subjects/responses.ts';
import { configuration, constraints, files, metadata } from './subjects/values.ts';

/** Everything that takes bytes from outside. */
export const subjects = async (): Promise<readonly Subject[]> => [
  requests('sotw'),
  requests('delta'),
  responses('sotw'),
  responses('delta'),
  metadata,
  constraints,
  configuration,
  files,
  ...(await disk()),
];
