/** A run of a gateway's core on random inputs: what a live gateway would have told it, with a log as it would be written. */

import { writeFileSync } from 'node:fs';
import type { PolicyBundle } from '../../src/policy/evolve/bundle/policyBundle.ts';
import { parseBundle } from '../../src/policy/evolve/bundle/readBundle.ts';
import { checkGateway, type GatewayConfig } from '../../src/serve/gateway/config.ts';
import { GatewayCore } from '../../src/serve/gateway/core.ts';
import { logHeader } from '../../src/serve/gateway/decisionLog.ts';
import { bindPlan } from '../../src/serve/gateway/plan.ts';
import { type GatewayInput, type GatewayOutput, keysText } from '../../src/serve/gateway/records.ts';
import { Random } from '../fuzz/random.ts';

export function bundleOf(slots: Record<string, unknown>, name = 'a'): PolicyBundle {
  return parseBundle(JSON.stringify({ name, ...slots }));
}

export const prefixBundle: PolicyBundle = bundleOf({
  routing: {
    type: 'parameterized',
    template: 'weighted',
    parameters: { scorers: { 'prefix-affinity': 3, 'queue-depth': 1 } },
  },
});

/** A program that fails on some requests, in a way that depends on the request alone. */
export const failingProgram: PolicyBundle = bundleOf({
  routing: {
    type: 'code',
    language: 'starlark',
    source: [
      'def score(request, cluster, instances):',
      '  x = 1 / (request.promptTokens % 3)',
      '  return [x - i.inFlight for i in instances]',
      '',
    ].join('\n'),
  },
});

export interface RecordedRun {
  readonly lines: string[];
  readonly outputs: GatewayOutput[];
  readonly core: GatewayCore;
}

/** Keys of a prompt that begins as one of `families` do. */
function keysOf(random: Random, blocks: number): Uint32Array {
  const words = new Uint32Array(blocks * 4);
  const family = random.below(4);
  const shared = random.below(blocks + 1);
  for (let block = 0; block < blocks; block++) {
    const own = block < shared ? 0 : random.below(1000);
    words.set([family, block, own, 7], block * 4);
  }
  return words;
}

/** @param steps inputs, waking and requests among them */
export async function recordedRun(
  config: Omit<GatewayConfig, 'backends'>,
  seed: number,
  steps: number,
): Promise<RecordedRun> {
  const random = new Random(seed);
  const { plan } = checkGateway({ backends: [], ...config });
  const lines: string[] = [
    JSON.stringify(
      logHeader(plan, { tokenisation: 'text', chats: 'text' }, { run: '', part: 0, began: new Date(0) }),
    ),
  ];
  const outputs: GatewayOutput[] = [];
  const core = new GatewayCore(await bindPlan(plan), (output) => {
    lines.push(JSON.stringify(output));
    outputs.push(output);
    follow(output);
  });
  /** Where each request is, by the decisions. */
  const waiting = new Set<number>();
  const routed = new Map<number, number>();
  const follow = (output: GatewayOutput): void => {
    if (output.out === 'fallback') return;
    if (output.out === 'admission' && output.verdict !== 'reject') return;
    waiting.delete(output.request);
    routed.delete(output.request);
    if (output.out === 'route') routed.set(output.request, output.target);
  };
  let nowUs = 0;
  const tell = (input: GatewayInput): void => {
    lines.push(JSON.stringify(input));
    core.accept(input);
  };
  let instances = 0;
  const up = new Set<number>();
  const begin = (): void => {
    const instance = instances++;
    tell({ in: 'backend', atUs: nowUs, instance, id: `b${instance}`, model: 'm', capacityBlocks: [100] });
    tell({ in: 'routable', atUs: nowUs, instance, routable: true });
    up.add(instance);
  };
  for (let i = 0; i < 4; i++) begin();
  let numbers = 0;
  const one = <T>(from: Iterable<T>): T | undefined => {
    const all = [...from];
    return all.length === 0 ? undefined : all[random.below(all.length)];
  };
  for (let step = 0; step < steps; step++) {
    nowUs += random.below(3000);
    while (core.nextWakeUs <= nowUs) tell({ in: 'wake', atUs: nowUs });
    const what = random.below(100);
    if (what < 45) {
      const blocks = random.below(12);
      const number = numbers++;
      waiting.add(number);
      tell({
        in: 'arrive',
        atUs: nowUs,
        request: {
          number,
          id: `r${number}`,
          tenantId: one(['', 'a', 'b']) ?? '',
          sloClass: one(['', 'critical', 'batch', 'sheddable']) ?? '',
          model: 'm',
          adapter: '',
          sessionId: one(['', 's1', 's2']) ?? '',
          promptTokens: blocks * 16 + random.below(16) + 1,
          deadlineUs: 0,
          sloTargetUs: random.below(2) * 50_000,
          keys: keysText(keysOf(random, blocks), blocks),
        },
      });
    } else if (what < 60) {
      const instance = one(up);
      if (instance === undefined) continue;
      const used = random.below(101);
      tell({
        in: 'report',
        atUs: nowUs,
        instance,
        report: {
          queueDepth: random.below(8),
          batchSize: random.below(16),
          maxBatch: 16,
          preemptions: step,
          usedBlocks: [used],
          freeBlocks: [100 - used],
          hitBlocks: step,
          lookupBlocks: 2 * step,
          offloadedBlocks: step,
          reloadedBlocks: 0,
          recentTtftUs: random.below(100_000),
          recentTpotUs: random.below(10_000) / 7,
          adapters: [],
        },
      });
    } else if (what < 80) {
      const request = one(routed.keys());
      if (request === undefined) continue;
      if (random.below(3) > 0) tell({ in: 'token', atUs: nowUs, request });
      tell({ in: 'cached', atUs: nowUs, request, blocks: random.below(5) });
      routed.delete(request);
      const how = random.below(8) === 0 ? 'dropped' : 'completed';
      tell({ in: 'end', atUs: nowUs, request, how, outputTokens: random.below(50) });
    } else if (what < 86) {
      const request = one(routed.keys());
      if (request !== undefined) tell({ in: 'retry', atUs: nowUs, request });
    } else if (what < 89) {
      const request = one(waiting);
      if (request === undefined) continue;
      waiting.delete(request);
      tell({ in: 'leave', atUs: nowUs, request });
    } else if (what < 93) {
      const instance = one(up);
      if (instance === undefined) continue;
      up.delete(instance);
      tell({ in: 'routable', atUs: nowUs, instance, routable: false });
      if (random.below(2) === 0) tell({ in: 'gone', atUs: nowUs, instance });
      begin();
    } else {
      const instance = one(up);
      if (instance === undefined) continue;
      const blocks = 1 + random.below(5);
      const keys = keysText(keysOf(random, blocks), blocks);
      tell({ in: 'kv', atUs: nowUs, instance, tier: 0, stored: random.below(3) > 0, keys });
    }
  }
  return { lines, outputs, core };
}

export function writeLog(path: string, lines: readonly string[]): void {
  writeFileSync(path, `${lines.join('\n')}\n`);
}
