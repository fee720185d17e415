/**
 * What each eviction policy finds of the public traces, beside LRU and the clairvoyant optimum: one pool, one
 * request at a time, through the real manager.
 *
 *     node bench/kv/policies.ts --traces DIR [--trace conversation,agent] [--policy hazard,arc]
 *                            [--capacity 1000,3000] [--requests N] [--held] [--json]
 *
 * `closed` is the share of the way from LRU to the optimum. `ns/block` is the time of the whole process, so
 * compare it with the line of LRU. The agent trace has 40 million blocks: one line takes about a minute.
 */

import { parseArgs } from 'node:util';
import { firstRequests, Optimum, PoolStudy, type StudyRow, shareOf } from '../../src/studies/replay/study.ts';
import { loadTrace, type PublicTrace, type TraceName, traceNames } from './policies/traces.ts';

interface Row extends StudyRow {
  readonly trace: string;
}

const { values } = parseArgs({
  options: {
    traces: { type: 'string' },
    trace: { type: 'string', default: traceNames.join() },
    policy: { type: 'string', default: 'fifo,lfu,arc,s3fifo,hazard' },
    capacity: { type: 'string', default: '' },
    requests: { type: 'string', default: 'Infinity' },
    held: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
  },
});
if (values.traces === undefined) {
  console.error('Name the directory that has the traces: --traces DIR');
  process.exit(2);
}

const rows: Row[] = [];
const warm = new Set<string>();
for (const name of values.trace.split(',')) {
  const trace = loadTrace(values.traces, name as TraceName);
  if (trace === undefined) console.error(`${name}: not in ${values.traces}, left out`);
  else benchTrace({ ...trace, ...firstRequests(trace, Number(values.requests)) });
}
if (values.json) console.log(JSON.stringify({ bench: 'policies', held: values.held, rows }));

function benchTrace(trace: PublicTrace): void {
  const optimum = new Optimum(trace);
  const capacities = values.capacity === '' ? trace.capacities : values.capacity.split(',').map(Number);
  if (!values.json) console.log(heading(trace));
  for (const capacity of capacities) {
    const lru = run(trace, capacity, 'lru');
    const best = optimum.hits(capacity);
    const add = (policy: string, hits: number, nsPerBlock: number | null): void => {
      const share = shareOf(hits, lru.hits, best, trace.lookups);
      const row: Row = { trace: trace.name, capacity, policy, ...share, nsPerBlock };
      rows.push(row);
      if (!values.json) console.log(line(row));
    };
    add('lru', lru.hits, lru.nsPerBlock);
    for (const policy of values.policy.split(',')) {
      const { hits, nsPerBlock } = run(trace, capacity, policy);
      add(policy, hits, nsPerBlock);
    }
    add('optimum', best, null);
  }
}

/** Runs the trace once; a policy's first run comes after a short one that warms the engine up. */
function run(trace: PublicTrace, capacity: number, policy: string): { hits: number; nsPerBlock: number } {
  const options = { capacity, eviction: { policy }, held: values.held };
  if (!warm.has(policy)) new PoolStudy(trace, options).advance(30_000);
  warm.add(policy);
  const study = new PoolStudy(trace, options);
  while (study.done < study.requests) {
    study.advance(100_000);
    if (!process.stderr.isTTY) continue;
    const share = Math.round((100 * study.done) / study.requests);
    process.stderr.write(`\r${trace.name} ${capacity} ${policy} ${share}% `);
  }
  if (process.stderr.isTTY) process.stderr.write('\r\x1b[K');
  return study.result();
}

function heading(trace: PublicTrace): string {
  const size = `${trace.runs.length} requests, ${trace.lookups} blocks of ${trace.blockTokens} tokens`;
  return `\n${trace.name}: ${size}\n  capacity  policy      hit %   closed %    points   ns/block`;
}

function line(row: Row): string {
  const closed = row.closedPercent === null ? '-' : row.closedPercent.toFixed(1);
  const ns = row.nsPerBlock === null ? '-' : row.nsPerBlock.toFixed(0);
  return [
    String(row.capacity).padStart(10),
    `  ${row.policy.padEnd(8)}`,
    row.hitPercent.toFixed(3).padStart(9),
    closed.padStart(11),
    row.points.toFixed(3).padStart(10),
    ns.padStart(11),
  ].join('');
}
