/**
 * A server whose steps take a known time is observed, fitted to on half of its requests and predicted on the other. It is
 * written down here anew, not by the replay that fits use, and lives in virtual time: what is off is the fit's, or the
 * replay's, and no noise of a machine. Its steps cost what steps of GPUs do not: work for each request, attention that grows
 * with the square of the prompt, decodes that grow with the context.
 */

import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { readText } from '../../../src/sim/build/dataFiles.ts';
import { compareTimes } from '../../../src/sim/fitting/comparison.ts';
import { fitToRequests, measuredRun } from '../../../src/sim/fitting/fitRequests.ts';
import type { CalibratedCoefficients } from '../../../src/sim/latency/calibrated.ts';
import { readMeasuredRun } from '../../../src/sim/latency/fit/measuredRuns.ts';
import { replayRun } from '../../../src/sim/latency/fit/runFit.ts';

interface Served {
  readonly atUs: number;
  readonly prompt: number;
  readonly output: number;
  done: number;
  got: number;
  firstUs: number;
  lastUs: number;
}

interface Step {
  /** Tokens that the step computes, of prompts and of decodes. */
  readonly rows: number;
  readonly decodes: number;
  /** Tokens in the caches of the decodes. */
  readonly context: number;
  /** Pairs of a new prompt token with itself or one before it. */
  readonly pairs: number;
}

const sequences = 16;
const stepTokens = 256;
const count = 60;

/** Continuous batching: all that run get their next token or the next piece of their prompt; arrivals join between steps. */
function serve(requests: readonly Served[], stepUs: (step: Step) => number): void {
  let nowUs = 0;
  let next = 0;
  let running: Served[] = [];
  while (next < requests.length || running.length > 0) {
    if (running.length === 0) nowUs = Math.max(nowUs, requests[next].atUs);
    while (running.length < sequences && next < requests.length && requests[next].atUs <= nowUs)
      running.push(requests[next++]);
    let left = stepTokens;
    let [rows, decodes, context, pairs] = [0, 0, 0, 0];
    const pieces = running.map((request) => {
      const isDecode = request.done >= request.prompt;
      const piece = Math.min(left, isDecode ? 1 : request.prompt - request.done);
      left -= piece;
      rows += piece;
      if (piece > 0 && isDecode) {
        decodes++;
        context += request.done;
      } else pairs += piece * request.done + (piece * (piece + 1)) / 2;
      return piece;
    });
    nowUs += stepUs({ rows, decodes, context, pairs });
    running.forEach((request, i) => {
      request.done += pieces[i];
      if (pieces[i] === 0 || request.done < request.prompt) return;
      if (request.got++ === 0) request.firstUs = nowUs;
      request.lastUs = nowUs;
    });
    running = running.filter(({ got, output }) => got < output);
  }
}

/** Poisson arrivals, prompts of 16 to 256 tokens and answers of 8 to 64, from a generator of remainders. */
function requestsAt(perSecond: number): Served[] {
  let state = 7;
  const draw = (): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state + 0.5) / 2 ** 32;
  };
  let atUs = 0;
  return Array.from({ length: count }, () => {
    atUs += Math.round((-Math.log(draw()) / perSecond) * 1e6);
    const [prompt, output] = [16 + Math.floor(240 * draw()), 8 + Math.floor(56 * draw())];
    return { atUs, prompt, output, done: 0, got: 0, firstUs: 0, lastUs: 0 };
  });
}

let folder: string;
beforeEach(() => {
  folder = fs.mkdtempSync(join(tmpdir(), 'tierkv-known-'));
  onTestFinished(() => fs.rmSync(folder, { recursive: true }));
});

/** Observed, fitted to on the first half; errors of the second half's means, in percent. */
function heldOut(perSecond: number, stepUs: (step: Step) => number) {
  const requests = requestsAt(perSecond);
  serve(requests, stepUs);
  const file = join(folder, 'run.jsonl');
  const lines = requests.map((request) => ({
    arrival_us: request.atUs,
    prompt_tokens: request.prompt,
    output_tokens: request.output,
    ttft_us: request.firstUs - request.atUs,
    e2e_us: request.lastUs - request.atUs,
  }));
  fs.writeFileSync(file, lines.map((line) => JSON.stringify(line)).join('\n'));
  const gpu = join(folder, 'machine.json');
  const shares = { mfuPrefill: 0.5, mfuDecode: 0.5, source: 'assumed' };
  const peaks = { peakTflops: 0.01, memoryTbPerS: 0.01, memoryGib: 4 };
  fs.writeFileSync(gpu, JSON.stringify({ name: 'this-machine', ...peaks, ...shares }));
  const by = {
    gpu,
    model: 'examples/server/tinyModel/files/config.json',
    tp: 1,
    dp: 1,
    maxSequences: sequences,
    maxBatchedTokens: stepTokens,
    memoryUtilization: 0.9,
    blockTokens: 16,
    kvBlocks: 4096,
  };
  const report = fitToRequests({ ...by, requests: file, fitShare: 0.5 });
  const { kvBlocks: _, ...run } = measuredRun(readMeasuredRun(readText(file), file).requests, by);
  const coefficients = report.file as unknown as CalibratedCoefficients;
  const values = compareTimes(run.requests, replayRun(run, coefficients), count / 2);
  const mean = (what: string): number =>
    values.find((value) => value.what === what && value.point === 'mean')!.errorPercent;
  return { ttft: mean('TTFT'), tpot: mean('TPOT'), e2e: mean('E2E'), atPeak: report.atPeak };
}

describe('a fit to the first half predicts the second', () => {
  it.each([
    [
      'of work for each request, and slow attention',
      4,
      ({ rows, decodes, context, pairs }: Step) =>
        2500 + 400 * rows + 2.5 * pairs + 1000 * decodes + 3 * context,
    ],
    [
      'of decodes that cost more than prompts, under load',
      3,
      ({ rows, decodes, context }: Step) => 1000 + 150 * rows + 4000 * decodes + 10 * context,
    ],
  ] as const)('%s', (_, perSecond, stepUs) => {
    const { ttft, tpot, e2e } = heldOut(perSecond, stepUs);
    expect(Math.abs(tpot)).toBeLessThan(3);
    expect(Math.abs(e2e)).toBeLessThan(3);
    expect(Math.abs(ttft)).toBeLessThan(8);
  });

  it('and names a share that stopped at the peak of the file: the machine is faster than that', () => {
    // 20 µs a token are 40 GFLOP/s of this model, four times what the file says
    const { atPeak } = heldOut(0.5, ({ rows }) => 3000 + 20 * rows);
    expect(atPeak).toContain('peakTflops');
  });
});
