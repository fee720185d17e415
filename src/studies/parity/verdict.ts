/** The verdict of a parity run in three sentences: what was equal, how far the prediction was, and how good that is. */

import { isQuiet } from '../../io/machineLoad.ts';
import { formatCount, formatCounted } from '../../io/printing/text.ts';
import type { ParityReport } from './comparison.ts';

/** A prediction is good within this share of the mean time of requests, and these percentage points of blocks found. */
const GOOD_SHARE = 0.1;
const GOOD_POINTS = 2;

const percent = (share: number, digits = 0): string => `${(100 * share).toFixed(digits)} %`;

function equality({ exact, wrongBlocks }: ParityReport): string {
  const bytes =
    wrongBlocks === 0
      ? 'no block came back wrong'
      : `${formatCounted(wrongBlocks, 'blocks')} came back wrong, which is a fault of this machine or of tierkv`;
  const { firstDifference, lines } = exact;
  if (exact.identical) {
    return `The simulator decided all ${formatCount(lines)} recorded inputs as the runtime did, byte for byte, and ${bytes}.`;
  }
  const at = firstDifference === null ? '' : ` from byte ${formatCount(firstDifference)} of the log on`;
  return `The simulator decided otherwise than the runtime${at}, which is a fault of tierkv: please report it with the decision log; ${bytes}.`;
}

const off = (error: number): string =>
  Number.isFinite(error)
    ? `${percent(Math.abs(error), 1)} too ${error < 0 ? 'short' : 'long'}`
    : 'not comparable';

function distance({ hits, latencies }: ParityReport): string {
  return (
    `Left alone, it predicted ${Math.abs(hits.points).toFixed(1)} percentage points ${hits.points < 0 ? 'fewer' : 'more'} blocks found, ` +
    `a mean time to the first token ${off(latencies.ttft.meanError)}, and a mean time of a request ${off(latencies.e2e.meanError)}.`
  );
}

function judgement({ hits, latencies, transfers, machine, adapter }: ParityReport): string {
  const errors = [latencies.ttft.meanError, latencies.e2e.meanError].map(Math.abs);
  const isGood = errors.every((error) => error <= GOOD_SHARE) && Math.abs(hits.points) <= GOOD_POINTS;
  const others = `other processes used ${percent(machine.othersShare)} of its ${formatCounted(machine.cores, 'cores')}`;
  if (isGood) {
    return `That is good: within ${percent(GOOD_SHARE)} and ${GOOD_POINTS} points${isQuiet(machine) ? '' : `, though ${others}`}.`;
  }
  if (!isQuiet(machine)) {
    return `That says little of the simulator: ${others} while it served, so real steps and copies waited; run it again when the machine is quiet.`;
  }
  const [worst] = Object.entries(transfers)
    .filter(([, { medianError }]) => Number.isFinite(medianError))
    .sort(([, a], [, b]) => Math.abs(b.medianError) - Math.abs(a.medianError));
  const link =
    worst === undefined || Math.abs(worst[1].medianError) <= GOOD_SHARE
      ? 'no link explains it, so look at the latency model and its coefficients'
      : `the link ${worst[0]} explains most, whose median transfer was predicted ${off(worst[1].medianError)}; measure the links with tierkv calibrate, and give their profile`;
  const device = adapter.software ? ', and a software device computes on the cores that also copy' : '';
  return `That is not good, and the machine was quiet: ${link}${device}.`;
}

export function parityVerdict(report: ParityReport): readonly string[] {
  return [equality(report), distance(report), judgement(report)];
}
