/** What a gateway costs: the time that it adds to a request, and the memory that it holds under load. */

import http from 'node:http';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { prefixAware } from './campaign.ts';
import { echo, gatewayOf, TestBackend } from './live/backends.ts';

const body = JSON.stringify({
  model: 'm',
  prompt: 'a prompt of some length, as a client would send it. '.repeat(40),
});

/** One request over a connection that is kept. @returns milliseconds */
async function timed(agent: http.Agent, url: string): Promise<number> {
  const began = performance.now();
  await new Promise<void>((resolve, reject) => {
    const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
    const request = http.request(`${url}/v1/completions`, { method: 'POST', agent, headers }, (response) => {
      response.resume();
      response.on('end', resolve);
    });
    request.on('error', reject);
    request.end(body);
  });
  return performance.now() - began;
}

function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(share * (sorted.length - 1))];
}

/** Milliseconds of a request direct and through a gateway, in turns; all of it in one process. */
export async function addedLatency(
  requests: number,
): Promise<Readonly<Record<'direct' | 'gateway' | 'added', { p50: number; p99: number }>>> {
  await using a = await TestBackend.open(echo);
  await using b = await TestBackend.open(echo);
  await using gateway = await gatewayOf([a, b], { policy: prefixAware, pollMs: 500 });
  const agent = new http.Agent({ keepAlive: true });
  const direct: number[] = [];
  const through: number[] = [];
  for (let i = 0; i < requests; i++) {
    const [first, second] = [await timed(agent, a.url), await timed(agent, gateway.url)];
    // the first ones compile
    if (i >= requests / 10) {
      direct.push(first);
      through.push(second);
    }
  }
  agent.destroy();
  const of = (values: readonly number[]) => ({ p50: quantile(values, 0.5), p99: quantile(values, 0.99) });
  const [d, g] = [of(direct), of(through)];
  return { direct: d, gateway: g, added: { p50: g.p50 - d.p50, p99: g.p99 - d.p99 } };
}

/** MiB of the heap after a collection, at ten points of a load; the first ones still fill caches. */
export async function heapUnderLoad(requests: number, clients: number): Promise<readonly number[]> {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  await using a = await TestBackend.open(echo);
  await using b = await TestBackend.open(echo);
  await using gateway = await gatewayOf([a, b], { policy: prefixAware, pollMs: 500 });
  const agent = new http.Agent({ keepAlive: true, maxSockets: clients });
  const heap: number[] = [];
  for (let part = 0; part < 10; part++) {
    let left = requests / 10;
    await Promise.all(
      Array.from({ length: clients }, async () => {
        while (left-- > 0) await timed(agent, gateway.url);
      }),
    );
    a.seen.length = b.seen.length = 0;
    collect();
    heap.push(Number((process.memoryUsage().heapUsed / 2 ** 20).toFixed(2)));
  }
  agent.destroy();
  return heap;
}
