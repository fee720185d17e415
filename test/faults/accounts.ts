/**
 * Accounts of which fault fired, and how it was noticed. A fault is tied to the jobs in flight whose places
 * it hit; a silent one stays with the wrong copy that it left behind, and with copies of that copy, until it
 * is read. So each job's end can be judged: an error without a cause, a cause without an error, and wrong
 * bytes that passed for right ones are all counted.
 */

import { type Completion, type JobId, Outcome, Tier, type Transfer } from '../../src/runtime/index.ts';
import type { Place } from '../../src/runtime/tables/jobTable.ts';
import {
  type FaultKind,
  type FiredFault,
  faultKinds,
  reportedKinds,
  silentKinds,
} from '../../src/testing/faults.ts';

interface Fault {
  readonly kind: FaultKind;
  noticed: boolean;
  /**
   * Jobs in flight that it may have hit. Two can read one place: one that was called off and the one after
   * it.
   */
  jobs: number;
}

interface Flight {
  readonly transfer: Transfer;
  readonly faults: Fault[];
  /** Past its deadline. */
  late: boolean;
  /** On its way to a device that was lost. */
  lost: boolean;
}

export interface KindCount {
  fired: number;
  noticed: number;
}

export class FaultAccounts {
  readonly kinds: Record<FaultKind, KindCount>;
  /** Faults that passed for success, and errors that had no cause: each a line for people. */
  readonly violations: string[] = [];
  /** Jobs by how they ended: outcome number, 6 for ends that came after the job was given up. */
  readonly ends: Float64Array = new Float64Array(7);
  fired = 0;

  constructor() {
    this.kinds = Object.fromEntries(
      faultKinds.map((kind) => [kind, { fired: 0, noticed: 0 }]),
    ) as FaultAccounts['kinds'];
  }

  get noticed(): number {
    return faultKinds.reduce((sum, kind) => sum + this.kinds[kind].noticed, 0);
  }

  open(kind: FaultKind): Fault {
    this.fired++;
    this.kinds[kind].fired++;
    return { kind, noticed: false, jobs: 0 };
  }

  notice(fault: Fault): void {
    if (fault.noticed) return;
    fault.noticed = true;
    this.kinds[fault.kind].noticed++;
  }
}

/** The accounts of one world: its jobs in flight and its wrong copies. */
export class WorldAccounts {
  readonly #all: FaultAccounts;
  /** Whether a place holds the bytes that the transfer had to bring. */
  readonly #isRight: (transfer: Transfer) => boolean;
  readonly #flying: Map<JobId, Flight> = new Map();
  readonly #planted: Map<number, Fault[]> = new Map();
  #loss: Fault | undefined;

  constructor(all: FaultAccounts, isRight: (transfer: Transfer) => boolean) {
    this.#all = all;
    this.#isRight = isRight;
  }

  submitted(transfers: readonly Transfer[]): void {
    for (const transfer of transfers)
      this.#flying.set(transfer.job, { transfer, faults: [], late: false, lost: false });
  }

  fired({ kind, tier, op, places }: FiredFault): void {
    const fault = this.#all.open(kind);
    if (kind === 'deviceLost') this.#loss = fault;
    for (const { slot, generation } of places) {
      if (op === 'memory') this.#plant({ tier, slot, generation }, [fault]);
      for (const { transfer, faults } of this.#flying.values()) {
        const place = op === 'read' ? transfer.source : transfer.target;
        if (place?.tier !== tier || place.slot !== slot || place.generation !== generation) continue;
        faults.push(fault);
        fault.jobs++;
      }
    }
  }

  /**
   * The runtime has been told of the loss and has acted on it: no request waits for transfers that were under
   * way to the device.
   */
  lossNoticed(): void {
    if (this.#loss !== undefined) this.#all.notice(this.#loss);
    for (const flight of this.#flying.values()) {
      if (flight.transfer.target.tier === Tier.HBM) flight.lost = true;
    }
  }

  /** The deadline has passed, and the job was given up. */
  passed(nowUs: number): void {
    for (const flight of this.#flying.values()) if (flight.transfer.deadlineUs <= nowUs) flight.late = true;
  }

  ended(end: Completion): void {
    const flight = this.#flying.get(end.job)!;
    this.#flying.delete(end.job);
    const { transfer, faults, late, lost } = flight;
    const source = transfer.source === null ? [] : (this.#planted.get(placeNumber(transfer.source)) ?? []);
    this.#all.ends[late ? 6 : end.outcome]++;
    for (const fault of faults) {
      if (reportedKinds.includes(fault.kind)) this.#judgeReported(fault, end);
      else if (late && (fault.kind === 'stalled' || fault.kind === 'lateAfterCancel'))
        this.#all.notice(fault);
    }
    const silent = [...new Set([...faults, ...source])].filter(({ kind }) => silentKinds.includes(kind));
    if (lost) return;
    if (end.outcome === Outcome.CORRUPT) this.#judgeCorrupt(silent, end);
    else if (end.outcome === Outcome.LOADED && transfer.kind === 'move') this.#judgeLoaded(silent, transfer);
  }

  #judgeReported(fault: Fault, { outcome, reason }: Completion): void {
    if (outcome === Outcome.LOADED) {
      if (--fault.jobs === 0) this.#all.violations.push(`${fault.kind} ended as loaded`);
    } else if (outcome === Outcome.REFUSED || reason.includes(fault.kind)) this.#all.notice(fault);
  }

  #judgeCorrupt(silent: readonly Fault[], { reason }: Completion): void {
    if (silent.length === 0) this.#all.violations.push(`corrupt without a cause: ${reason}`);
    for (const fault of silent) this.#all.notice(fault);
  }

  #judgeLoaded(silent: readonly Fault[], transfer: Transfer): void {
    if (this.#isRight(transfer)) return;
    const { tier, slot } = transfer.target;
    if (silent.length === 0)
      this.#all.violations.push(`wrong bytes without a cause in tier ${tier}, slot ${slot}`);
    if (tier === Tier.HBM)
      this.#all.violations.push(`${silent[0]?.kind} passed for right in HBM, slot ${slot}`);
    this.#plant(transfer.target, silent);
  }

  #plant(place: Place, faults: readonly Fault[]): void {
    const at = placeNumber(place);
    this.#planted.set(at, [...(this.#planted.get(at) ?? []), ...faults]);
  }
}

function placeNumber({ tier, slot, generation }: Place): number {
  return (tier * 4096 + slot) * 2 ** 32 + generation;
}
