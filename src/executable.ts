/** The entry of the single executable: a process that the primary has started is a worker. */
import cluster from 'node:cluster';

await (cluster.isWorker ? import('./workers/main.ts') : import('./main.ts'));
