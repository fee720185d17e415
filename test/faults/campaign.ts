/** Runs worlds one after the other until the given number of faults has fired, and sums up the results. */

import { type FaultKind, faultKinds } from '../../src/testing/faults.ts';
import { FaultAccounts } from './accounts.ts';
import { FaultWorld, type WorldReport, type WorldTier } from './faultWorld.ts';

const FAULTS_PER_WORLD = 400;

export interface CampaignReport extends WorldReport {
  readonly seed: number;
  readonly worlds: number;
  readonly hangs: number;
  readonly accounts: FaultAccounts;
  /** Seeds of worlds that hung or broke an invariant, with why. */
  readonly failures: readonly string[];
}

/**
 * @param verify false for the control run: the stand-ins check no digest, so wrong blocks must be found
 * @param below a tier of its own that every world has, behind all others
 */
export async function runCampaign(
  faults: number,
  seed: number,
  verify = true,
  progress: (fired: number) => void = () => {},
  below?: WorldTier,
): Promise<CampaignReport> {
  const accounts = new FaultAccounts();
  const total: WorldReport = { steps: 0, requests: 0, reads: 0, wrongBlocks: 0, leakedSlots: 0, losses: 0 };
  const failures: string[] = [];
  let worlds = 0;
  for (; accounts.fired < faults && failures.length < 10; worlds++) {
    const until = Math.min(faults, accounts.fired + FAULTS_PER_WORLD);
    const report = await FaultWorld.run(
      seed * 1_000_003 + worlds,
      accounts,
      verify,
      () => accounts.fired >= until,
      below,
    ).catch((error: Error) => {
      failures.push(error.message);
      return null;
    });
    if (report === null) continue;
    for (const key of Object.keys(total) as (keyof WorldReport)[]) total[key] += report[key];
    progress(accounts.fired);
  }
  const hangs = failures.filter((failure) => failure.includes('hang')).length;
  return { ...total, seed, worlds, hangs, accounts, failures };
}

/**
 * One line a kind. A fault is not noticed when the wrong copy was dropped unread, or another fault ended the
 * job.
 */
export function kindTable({ accounts }: CampaignReport): string {
  const row = (kind: string, fired: string, noticed: string, rest: string): string =>
    `${kind.padEnd(16)} ${fired.padStart(10)} ${noticed.padStart(10)} ${rest.padStart(14)}`;
  const lines = [row('fault', 'fired', 'noticed', 'without effect')];
  for (const kind of faultKinds) {
    const { fired, noticed } = accounts.kinds[kind];
    lines.push(row(kind, String(fired), String(noticed), String(fired - noticed)));
  }
  return lines.join('\n');
}

/** Kinds that did not fire, or that were never noticed. */
export function silentInReport({ accounts }: CampaignReport): FaultKind[] {
  return faultKinds.filter((kind) => accounts.kinds[kind].fired === 0 || accounts.kinds[kind].noticed === 0);
}

export function lastLine({ accounts, wrongBlocks, hangs, leakedSlots, seed }: CampaignReport): string {
  return (
    `faults fired ${accounts.fired}, noticed ${accounts.noticed}, wrong blocks ${wrongBlocks}, ` +
    `hangs ${hangs}, leaked slots ${leakedSlots}, seed ${seed}`
  );
}
