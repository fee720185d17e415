/** The numbers of the preset `chat` are those of the traces that they are said to be from. */

import { existsSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { presetLengths } from '../../../src/sim/workload/presets.ts';

const shared = new URL('../../../../shared/traces/', import.meta.url);
const mooncake = new URL('mooncake-fast25/conversation_trace.jsonl.gz', shared);
const azure = new URL('azure-llm-2023/AzureLLMInferenceTrace_conv.csv.gz', shared);
const absent = ![mooncake, azure].every((file) => existsSync(file));
if (absent)
  console.warn('SKIPPED: the traces of conversations are not here: put them under ../shared/traces');

const linesOf = (file: URL): string[] =>
  gunzipSync(readFileSync(file)).toString('utf8').trimEnd().split('\n');
const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[values.length >> 1];
const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

describe.skipIf(absent)('chat', () => {
  const { prompt, output, conversation } = presetLengths('chat');

  it("has Azure's answers, and prompts of its mean length over all rounds", () => {
    const [, ...rows] = linesOf(azure).map((line) => line.trim().split(','));
    const [inputs, outputs] = [1, 2].map((column) => rows.map((row) => Number(row[column])));
    expect(rows.length).toBe(19_366);
    expect(output!.mean).toBe(Math.round(mean(outputs)));
    const deviation = Math.sqrt(mean(outputs.map((one) => (one - mean(outputs)) ** 2)));
    expect(output!.stdDev).toBe(Math.round(deviation));
    expect(output!.max).toBe(Math.max(...outputs));
    const { rounds, systemTokens } = conversation!;
    const repeated = ((rounds - 1) / 2) * (prompt!.mean + output!.mean);
    expect(Math.abs((systemTokens + prompt!.mean + repeated) / mean(inputs) - 1)).toBeLessThan(0.01);
  });

  it("has the questions and the pauses of Mooncake's conversations", () => {
    const rows = linesOf(mooncake).map(
      (line) =>
        JSON.parse(line) as {
          timestamp: number;
          input_length: number;
          output_length: number;
          hash_ids: number[];
        },
    );
    // a follow-up begins with all full blocks of the round before it, beyond the system prompt's
    const lastWith = new Map<number, number>();
    const pausesMs: number[] = [];
    const questions: number[] = [];
    for (const [i, row] of rows.entries()) {
      const parent = row.hash_ids.findLast((id) => lastWith.has(id));
      const full = Math.floor(row.input_length / 512);
      if (parent !== undefined) {
        const before = rows[lastWith.get(parent)!];
        if (before.input_length >= 1024 && row.input_length > before.input_length) {
          pausesMs.push(row.timestamp - before.timestamp);
          const asked = row.input_length - before.input_length - before.output_length;
          if (asked > 0) questions.push(asked);
        }
      }
      if (full > 0) lastWith.set(row.hash_ids[full - 1], i);
    }
    expect(pausesMs.length).toBeGreaterThan(3000);
    expect(conversation!.thinkTimeMs).toBe(Math.round(median(pausesMs)));
    expect(prompt!.mean).toBe(median(questions));
  });
});
