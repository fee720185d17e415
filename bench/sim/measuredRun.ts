/**
 * The simulator beside a measured vLLM: 300 ShareGPT requests at 10 a second on one RTX PRO 6000 (data/latency,
 * from LLMServingSim's repository), served by the simulated instance: real scheduler, real manager, modeled
 * steps. The load is above what the engine serves, so most of TTFT is queueing, which amplifies every error of
 * a step.
 *
 *     node bench/sim/measuredRun.ts [--json]
 *
 * Two rows: coefficients fitted to the first half of these requests, judged on the second; and H100's
 * coefficients with nothing fitted, judged on all.
 */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { buildPlanned, runToEnd } from '../../src/sim/build/build.ts';
import { planSimulation } from '../../src/sim/build/plan.ts';
import { askedBy, readWords } from '../../src/sim/description/readers.ts';
import { otherGpuRun } from '../../src/sim/fitting/check.ts';
import { SchedulerEngine } from '../../src/sim/instance/schedulerEngine.ts';
import type { MeasuredRequest } from '../../src/sim/latency/fit/measuredRuns.ts';
import { BatchSums } from '../../src/sim/latency/latencyModel.ts';
import { engineShape, PhysicalFloor } from '../../src/sim/latency/physics.ts';

export interface MeasuredError {
  readonly coefficients: string;
  readonly what: 'TTFT' | 'TPOT' | 'E2E';
  readonly measuredMeanMs: number;
  readonly simulatedMeanMs: number;
  readonly meanError: number;
  readonly p90Error: number;
}

export interface MeasuredComparison {
  readonly errors: readonly MeasuredError[];
  readonly steps: number;
  /** Steps that take less than the hardware needs. */
  readonly belowFloor: number;
}

interface Times {
  readonly ttftMs: number;
  readonly tpotMs: number;
  readonly e2eMs: number;
}

const header = [
  'request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,streaming',
  'input_tokens,output_tokens,arrival_time_us,status',
].join(',');

const mean = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length;
const p90 = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.ceil(values.length * 0.9) - 1];

/** @param coefficients file of `tierkv latency fit` @param first request that is judged */
export function compareWithRun(label: string, coefficients: string, first: number): MeasuredComparison {
  const run = otherGpuRun();
  const folder = mkdtempSync(join(tmpdir(), 'tierkv-measured-'));
  try {
    const file = join(folder, 'run.csv');
    const rows = run.requests.map(({ arrivalUs, promptTokens, outputTokens }, i) =>
      [i, 'c', 't', '', '', 0, '', 'true', promptTokens, outputTokens, Math.round(arrivalUs), 'ok'].join(','),
    );
    writeFileSync(file, `${[header, ...rows].join('\n')}\n`);
    const words =
      '--model llama-3.1-8b-instruct --hardware RTX-PRO-6000 --tp 1 --latency-model calibrated --floor ' +
      `--max-num-seqs ${run.limits.requests} --max-num-batched-tokens ${run.limits.tokensPerStep} ` +
      '--preemption-mode recompute';
    const { deployment } = askedBy(readWords([...words.split(' '), '--coefficients', coefficients, file]));
    const batches: BatchSums[] = [];
    const built = runToEnd((skipsKeys) => {
      batches.length = 0;
      return buildPlanned(planSimulation(deployment), {
        skipsKeys,
        makeEngine: ({ engine }, timeline, woken) => new WatchedEngine(batches, engine, timeline, woken),
      });
    });
    const { table } = built.simulation;
    const simulated = run.requests.map(
      (_, row): Times => ({
        ttftMs: table.firstTokenUs[row] / 1000,
        tpotMs: table.meanGapUs(row) / 1000,
        e2eMs: table.e2eUs[row] / 1000,
      }),
    );
    const { machine } = built;
    const floor = new PhysicalFloor(engineShape(machine.model, machine.hardware, { tp: 1, dp: 1 }));
    return {
      errors: errorsOf(label, run.requests.slice(first).map(timesOf), simulated.slice(first)),
      steps: batches.length,
      belowFloor: batches.filter((sums) => machine.latency.stepTimeUs(sums) < floor.floorUs(sums)).length,
    };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Keeps what each step computes. */
class WatchedEngine extends SchedulerEngine {
  readonly #batches: BatchSums[];

  constructor(batches: BatchSums[], ...parts: ConstructorParameters<typeof SchedulerEngine>) {
    super(...parts);
    this.#batches = batches;
  }

  override step(nowUs: number): ReturnType<SchedulerEngine['step']> {
    const step = super.step(nowUs);
    if (step === null) return step;
    const sums = new BatchSums();
    sums.copy(step.sums);
    this.#batches.push(sums);
    return step;
  }
}

function timesOf({ arrivalUs, firstTokenUs, lastTokenUs, outputTokens }: MeasuredRequest): Times {
  return {
    ttftMs: (firstTokenUs - arrivalUs) / 1000,
    tpotMs: (lastTokenUs - firstTokenUs) / Math.max(outputTokens - 1, 1) / 1000,
    e2eMs: (lastTokenUs - arrivalUs) / 1000,
  };
}

function errorsOf(label: string, measured: readonly Times[], simulated: readonly Times[]): MeasuredError[] {
  const names = [
    ['TTFT', 'ttftMs'],
    ['TPOT', 'tpotMs'],
    ['E2E', 'e2eMs'],
  ] as const;
  return names.map(([what, key]): MeasuredError => {
    const [real, made] = [measured, simulated].map((all) => all.map((times) => times[key]));
    return {
      coefficients: label,
      what,
      measuredMeanMs: mean(real),
      simulatedMeanMs: mean(made),
      meanError: mean(made) / mean(real) - 1,
      p90Error: p90(made) / p90(real) - 1,
    };
  });
}

const dataFile = (name: string): string =>
  fileURLToPath(new URL(`../../data/latency/${name}`, import.meta.url));

/** Fitted to the first half, and judged on the second. */
export function fittedComparison(): MeasuredComparison {
  return compareWithRun('fitted to the first half', dataFile('calibrated-rtx-pro-6000.json'), 150);
}

export function unfittedComparison(): MeasuredComparison {
  return compareWithRun("H100's, nothing fitted", dataFile('calibrated-h100.json'), 0);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({ options: { json: { type: 'boolean', default: false } } });
  const all = [fittedComparison(), unfittedComparison()];
  if (values.json) console.log(JSON.stringify(all, null, 2));
  else {
    for (const { errors, steps, belowFloor } of all) {
      for (const one of errors) {
        const percent = (share: number): string => `${(100 * share).toFixed(1)} %`;
        console.log(
          `${one.coefficients.padEnd(26)} ${one.what.padEnd(5)} measured ${one.measuredMeanMs.toFixed(1)} ms, ` +
            `simulated ${one.simulatedMeanMs.toFixed(1)} ms: ${percent(one.meanError)}, p90 ${percent(one.p90Error)}`,
        );
      }
      console.log(`${' '.repeat(26)} ${steps} steps, ${belowFloor} below the physical floor`);
    }
  }
}
