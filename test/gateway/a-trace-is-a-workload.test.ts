import { describe, expect, it } from 'vitest';
import { type TracedRequest, traceLine } from '../../src/serve/gateway/trace.ts';
import { PromptKeys } from '../../src/sim/instance/simRequest.ts';
import { gatewayRequests } from '../../src/sim/workload/gatewayTrace.ts';
import { Random } from '../fuzz/random.ts';

function recordOf(changes: Partial<TracedRequest> = {}): TracedRequest {
  return {
    id: 'r',
    arrivalUs: 0,
    promptTokens: 40,
    words: Uint32Array.from([1, 2, 3, 4, 5, 6, 7, 8]),
    outputTokens: 3,
    maxTokens: 20,
    model: 'm',
    adapter: '',
    tenantId: 'shop',
    sloClass: 'batch',
    sloTargetUs: 5000,
    deadlineUs: 30,
    sessionId: 's',
    streams: false,
    outcome: 'completed',
    unknownEnd: '',
    backend: 'b0',
    prefillBackend: '',
    ttftUs: 10,
    e2eUs: 20,
    countedPromptTokens: 41,
    cachedTokens: 16,
    ...changes,
  };
}

const linesOf = (records: readonly TracedRequest[]): string[] =>
  records.map((each) => JSON.stringify(traceLine(each, 16)));
const read = (lines: readonly string[]) => [...gatewayRequests(lines, 'trace')];

it('requests come in order of arrival, with lengths, tenants and targets', () => {
  const requests = read(
    linesOf([recordOf({ arrivalUs: 70 }), recordOf({ arrivalUs: 30, promptTokens: 33 })]),
  );
  expect(
    requests.map(({ arrivalUs, inputTokens, outputTokens }) => [arrivalUs, inputTokens, outputTokens]),
  ).toEqual([
    [30, 33, 3],
    [70, 40, 3],
  ]);
  expect(requests[0].origin).toMatchObject({
    model: 'm',
    tenantId: 'shop',
    sloClass: 'batch',
    sloTargetUs: 5000,
  });
  expect(requests.map(({ deadlineUs }) => deadlineUs)).toEqual([60, 100]);
  expect(requests[0].sessionId).toBe('s');
});

it('a request that was turned away arrives with the tokens that it asked for', () => {
  const outcomes = read(
    linesOf([
      recordOf({ outcome: 'rejected', outputTokens: 0 }),
      recordOf({ outcome: 'unroutable', outputTokens: 0, maxTokens: 0 }),
      recordOf({ outcome: 'clientLeft', outputTokens: 2 }),
    ]),
  );
  expect(outcomes.map(({ outputTokens }) => outputTokens)).toEqual([20, 1, 2]);
});

it('the simulator shares the blocks of two prompts as the gateway had them, over random prompts', () => {
  const random = new Random(5);
  const prompts = Array.from({ length: 60 }, () => {
    const blocks = random.below(8);
    const family = random.below(3);
    const shared = random.below(blocks + 1);
    const words = new Uint32Array(blocks * 4);
    for (let i = 0; i < blocks; i++) words.set([family, i, i < shared ? 0 : random.below(1e9), 0], i * 4);
    // as a chain: what follows another block is another block
    let state = 17;
    for (let i = 0; i < blocks; i++) {
      state = (Math.imul(state, 31) + words[i * 4] + Math.imul(words[i * 4 + 2], 7919) + i) >>> 0;
      words[i * 4 + 1] = state;
    }
    return words;
  });
  const records = prompts.map((words, i) =>
    recordOf({ arrivalUs: i, words, promptTokens: words.length * 4 + 1 + random.below(15) }),
  );
  const keys = new PromptKeys(16);
  const made = read(linesOf(records)).map((request, i) => keys.keysOf(request, i));
  for (const [i, a] of prompts.entries()) {
    for (const [j, b] of prompts.entries()) {
      let shared = 0;
      const most = Math.min(a.length, b.length) / 4;
      while (shared < most && a[shared * 4] === b[shared * 4] && a[shared * 4 + 1] === b[shared * 4 + 1])
        shared++;
      let equal = 0;
      while (equal < most && made[i].equalsAt(equal, made[j].words, equal * 4)) equal++;
      expect([i, j, equal]).toEqual([i, j, shared]);
    }
  }
});

it('no word of a prompt and no API key is in a line', () => {
  const names = Object.keys(traceLine(recordOf(), 16));
  expect(names).not.toContain('prompt');
  expect(names.sort()).toEqual(
    [
      ...[
        'adapter',
        'arrival_us',
        'backend',
        'block_keys',
        'block_tokens',
        'cached_tokens',
        'counted_prompt_tokens',
        'deadline_us',
        'e2e_us',
      ],
      ...[
        'max_tokens',
        'model',
        'outcome',
        'output_tokens',
        'prefill_backend',
        'prompt_tokens',
        'request_id',
        'session',
        'slo_class',
      ],
      ...['slo_ttft_us', 'streaming', 'tenant', 'ttft_us'],
    ].sort(),
  );
});

it('an end that is not known is in the line of its request alone', () => {
  expect(traceLine(recordOf(), 16)).not.toHaveProperty('unknown_end');
  const odd = recordOf({ unknownEnd: 'moderated' });
  expect(traceLine(odd, 16)).toHaveProperty('unknown_end', 'moderated');
  expect(read(linesOf([odd]))).toHaveLength(1);
});

describe('a damaged trace names the line and the field', () => {
  const [good] = linesOf([recordOf()]);
  it.each([
    ['block_keys', good.replace('0000000100000002', 'xyz')],
    ['block_keys', good.replace('"prompt_tokens":40', '"prompt_tokens":10')],
    ['prompt_tokens', good.replace('"prompt_tokens":40', '"prompt_tokens":0')],
    ['arrival_us', good.replace('"arrival_us":0', '"arrival_us":-1')],
    ['block_tokens', good.replace('"block_tokens":16', '"block_tokens":0')],
    ['output_tokens', good.replace('"output_tokens":3', '"output_tokens":"3"')],
    ['tenant', good.replace('"tenant":"shop"', '"tenant":7')],
  ])('%s', (field, bad) => {
    expect(bad).not.toBe(good);
    expect(() => read([good, bad])).toThrowError(
      expect.objectContaining({ code: 'TKV_INPUT', line: 2, field }),
    );
  });
});
