/** A worker thread that generates the workload it is given and answers with its digest, tokens included. */

import { parentPort, workerData } from 'node:worker_threads';
import { parseWorkloadSpec } from '../../../src/sim/description/readWorkload.ts';
import { requestsOf } from '../../../src/sim/workload/request.ts';
import { WorkloadDigest } from '../../../src/sim/workload/summary.ts';
import { TokenReader } from '../../../src/sim/workload/tokens.ts';
import { generateWorkload } from '../../../src/sim/workload/workload.ts';

const { text } = workerData as { text: string };
const digest = new WorkloadDigest();
const reader = new TokenReader();
let tokens = 0;
for (const request of requestsOf(
  generateWorkload(parseWorkloadSpec(text, 'spec'), { maxRequests: 500 }).stream(),
)) {
  digest.add(request);
  for (const token of reader.prompt(request)) tokens = (tokens * 31 + token) % 1_000_000_007;
}
parentPort!.postMessage(`${digest}/${tokens}`);
