/**
 * What servers are sent and what simulations look up agree: two prompts of a recorded trace begin with equal token ids as far
 * as the trace names equal blocks, and no further. What lies behind the named blocks is of one request alone.
 */

import { describe, expect, it } from 'vitest';
import { PromptKeys } from '../../../src/sim/instance/simRequest.ts';
import { wekaRequests } from '../../../src/sim/workload/agentSessions.ts';
import { gatewayRequests } from '../../../src/sim/workload/gatewayTrace.ts';
import { bailianRequests, mooncakeRequests } from '../../../src/sim/workload/importers.ts';
import type { WorkloadRequest } from '../../../src/sim/workload/request.ts';
import { TokenReader } from '../../../src/sim/workload/tokens.ts';

const json = (rows: readonly object[]): string[] => rows.map((row) => JSON.stringify(row));

/** Traces under a name of their file: prompts of no, some and equal named blocks, with and without tokens behind them. */
const traces: Readonly<Record<string, (file: string) => Iterable<WorkloadRequest>>> = {
  weka: (file) =>
    wekaRequests(
      json(
        [60, 60, 130, 188, 188, 192].map((input, t) => {
          const blocks = Math.floor(input / 64);
          return { s: 'a', t, in: input, out: 1, h: blocks === 0 ? [] : [[0, blocks]] };
        }),
      ),
      file,
    ),
  gateway: (file) =>
    gatewayRequests(
      json(
        [0, 0, 1, 2, 2].map((blocks, i) => ({
          arrival_us: i,
          prompt_tokens: 100 + (i % 2),
          output_tokens: 1,
          block_tokens: 16,
          block_keys: ['00000000000000aa', '00000000000000bb'].slice(0, blocks),
        })),
      ),
      file,
    ),
  bailian: (file) =>
    bailianRequests(
      json(
        [15, 15, 31, 33, 47].map((input, chat) => ({
          chat_id: chat,
          parent_chat_id: -1,
          timestamp: chat,
          input_length: input,
          output_length: 1,
          type: 'text',
          turn: 1,
          hash_ids: [7, 8, 9].slice(0, Math.floor(input / 16)),
        })),
      ),
      file,
    ),
  mooncake: (file) =>
    mooncakeRequests(
      json(
        [900, 1000, 1000, 1024].map((input, i) => ({
          timestamp: i,
          input_length: input,
          output_length: 1,
          hash_ids: [0, i === 1 ? 1 : 2],
        })),
      ),
      file,
    ),
};

function sharedTokens(a: Int32Array, b: Int32Array): number {
  const most = Math.min(a.length, b.length);
  let at = 0;
  while (at < most && a[at] === b[at]) at++;
  return at;
}

describe.each(Object.entries(traces))('of %s', (_, open) => {
  it.each([1, 4, 16, 64])('token ids are shared in blocks of %d as keys are', (blockTokens) => {
    const requests = [...open('a.jsonl')];
    const reader = new TokenReader();
    const makeKeys = new PromptKeys(blockTokens);
    // lengths of the prompt alone, so that outputs decide nothing
    const prompts = requests.map((request) => ({ ...request, outputTokens: 0 }));
    const keys = prompts.map((request, own) => makeKeys.keysOf(request, own));
    for (const [i, one] of requests.entries()) {
      for (const [j, other] of requests.entries()) {
        if (j <= i) continue;
        const ids = sharedTokens(reader.prompt(one), reader.prompt(other));
        const most = Math.floor(Math.min(one.inputTokens, other.inputTokens) / blockTokens);
        let found = 0;
        while (found < most && keys[i].toHex(found) === keys[j].toHex(found)) found++;
        expect(Math.floor(ids / blockTokens), `prompts ${i} and ${j}`).toBe(found);
      }
    }
  });

  it('a copy elsewhere has the same tokens and keys', () => {
    const read = (file: string): { ids: Int32Array; key: string }[] =>
      [...open(file)].map((request, own) => ({
        ids: new TokenReader().prompt(request),
        key: new PromptKeys(16).keysOf(request, own).toHex(0),
      }));
    expect(read('/elsewhere/b.jsonl')).toEqual(read('a.jsonl'));
  });
});
