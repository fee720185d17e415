import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { distributionSpec, PRESETS, presetLengths } from '../../../src/sim/workload/presets.ts';

const data = parse(
  readFileSync(new URL('../../../data/workload-presets/presets.yaml', import.meta.url), 'utf8'),
) as { workloads: Record<string, Record<string, number>> };

describe('presets', () => {
  it('are the four of the data file, with its numbers', () => {
    expect(Object.keys(PRESETS).sort()).toEqual(Object.keys(data.workloads).sort());
    for (const [name, row] of Object.entries(data.workloads)) {
      const side = (key: string): object => ({
        mean: row[`${key}_tokens`],
        stdDev: row[`${key}_tokens_stdev`],
        min: row[`${key}_tokens_min`],
        max: row[`${key}_tokens_max`],
      });
      expect(PRESETS[name]).toEqual({ prompt: side('prompt'), output: side('output') });
      expect(row.prefix_tokens ?? 0).toBe(0);
    }
  });

  it('make specs that say what they are', () => {
    const spec = distributionSpec({ ...presetLengths('chatbot'), rate: 3, prefixTokens: 10 });
    expect(spec.clients[0]).toMatchObject({
      id: 'distribution',
      prefixGroup: 'shared',
      prefixLength: 10,
      timeoutUs: 300_000_000,
    });
    const talk = distributionSpec({ ...presetLengths('chat'), rate: 12 });
    expect(talk.aggregateRate).toBe(2);
    expect(talk.clients[0]).toMatchObject({
      prefixLength: 500,
      reasoning: {
        multiTurn: { maxRounds: 6, thinkTimeUs: 126_000_000, accumulate: true, singleSession: false },
      },
    });
    expect(() => distributionSpec({ ...presetLengths('chat'), concurrency: 5 })).toThrow(
      /^concurrency counts users of single requests/,
    );
    expect(() => presetLengths('chatbto')).toThrow(/Did you mean "chatbot"\?/);
  });
});
