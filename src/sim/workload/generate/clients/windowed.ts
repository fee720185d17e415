/**
 * Generation window by window, for clients whose windows carry rates or distributions of their own: the
 * expected number of gaps is drawn first and stretched so that they fill the window exactly; then the
 * requests follow. Upstream's rules hold here as they are unless told otherwise: single requests get no
 * prefix and no deadline, and the last gap ends on the window's end, so its request falls out.
 */

import { arrivalSampler, type LengthSampler, lengthSampler } from '../../../random/index.ts';
import { deadlineUs, type WorkloadRequest } from '../../request.ts';
import { type ActiveWindow, isClosedLoop } from '../../spec/types.ts';
import { NO_PREFIX } from '../prefix.ts';
import type { Client, ClientStream } from './client.ts';
import { SessionDrawer } from './conversation.ts';
import { EarliestFirst } from './earliest.ts';
import { gapBytes, roundBytes } from './heldMemory.ts';
import type { WindowRates } from './rates.ts';
import { singleRequest } from './single.ts';

/** Gaps stretched by one factor to sum to `durationUs`; what truncation loses goes onto the last. */
export function stretchGaps(gapsUs: Float64Array, durationUs: number): void {
  let sum = 0;
  for (const gap of gapsUs) sum += gap;
  if (sum === 0) return;
  const factor = durationUs / sum;
  let reached = 0;
  for (let i = 0; i < gapsUs.length; i++) {
    gapsUs[i] = Math.trunc(gapsUs[i] * factor);
    reached += gapsUs[i];
  }
  gapsUs[gapsUs.length - 1] += durationUs - reached;
}

const noGaps = new Float64Array(0);

export class WindowedStream implements ClientStream {
  readonly #client: Client;
  readonly #rates: WindowRates;
  readonly #keepPrefix: boolean;
  readonly #windows: readonly ActiveWindow[];
  /** Earliest start of the windows from i on. */
  readonly #laterStartUs: Float64Array;
  readonly #sessions: SessionDrawer | undefined;
  readonly #silentOrigin: WorkloadRequest['origin'];
  readonly #waiting = new EarliestFirst<WorkloadRequest>();
  #rank = 0;
  #opened = 0;
  #gapsUs: Float64Array = noGaps;
  #used = 0;
  #atUs = 0;
  #endUs = 0;
  #inputLength: LengthSampler;
  #outputLength: LengthSampler;

  constructor(client: Client, rates: WindowRates, keepPrefix: boolean) {
    this.#client = client;
    this.#keepPrefix = keepPrefix;
    this.#rates = rates;
    this.#windows = client.spec.windows.filter((window) => window.startUs < client.horizonUs);
    this.#laterStartUs = new Float64Array(this.#windows.length + 1).fill(Infinity);
    for (let i = this.#windows.length - 1; i >= 0; i--) {
      this.#laterStartUs[i] = Math.min(this.#windows[i].startUs, this.#laterStartUs[i + 1]);
    }
    this.#sessions = client.spec.reasoning?.multiTurn === undefined ? undefined : new SessionDrawer(client);
    this.#silentOrigin = { ...client.origin, sloTargetUs: 0 };
    this.#inputLength = client.inputLength;
    this.#outputLength = client.outputLength;
  }

  next(): WorkloadRequest | undefined {
    for (;;) {
      const laterUs = this.#laterStartUs[this.#opened];
      const nextUs = this.#nextArrivalUs();
      if (this.#waiting.size > 0 && this.#waiting.timeUs <= Math.min(nextUs, laterUs)) {
        this.#client.held.give(roundBytes);
        return this.#waiting.pop();
      }
      if (nextUs <= laterUs && nextUs !== Infinity) return this.#take(nextUs);
      if (this.#opened === this.#windows.length) return undefined;
      for (let us = nextUs; us !== Infinity; us = this.#nextArrivalUs()) {
        this.#wait(this.#take(us));
      }
      this.#open(this.#windows[this.#opened++]);
    }
  }

  /** Arrival of the next request of the open window, Infinity when it has no more. */
  #nextArrivalUs(): number {
    if (this.#used >= this.#gapsUs.length) return Infinity;
    const arrivalUs = this.#atUs + this.#gapsUs[this.#used];
    return arrivalUs < this.#endUs ? arrivalUs : Infinity;
  }

  #wait(request: WorkloadRequest): void {
    this.#client.held.take(roundBytes, this.#client.spec.id);
    this.#waiting.push(request.arrivalUs, this.#rank++, request);
  }

  #take(arrivalUs: number): WorkloadRequest {
    this.#used++;
    this.#atUs = arrivalUs;
    const turn = this.#client.drawTurn(this.#client.random, this.#inputLength, this.#outputLength);
    const { origin, prefix, spec } = this.#client;
    const deadline = deadlineUs(arrivalUs, spec.timeoutUs, isClosedLoop(spec));
    if (this.#keepPrefix) return singleRequest(this.#client, arrivalUs, turn, { prefix, origin }, deadline);
    // a timeout that was said is held; one that was not is none here, as upstream has it
    const said = spec.timeoutUs === undefined ? 0 : deadline;
    const request = singleRequest(this.#client, arrivalUs, turn, { prefix: NO_PREFIX, origin }, said);
    return origin.prefixGroup === '' ? request : { ...request, recordedPrefixGroup: '' };
  }

  #open(window: ActiveWindow): void {
    const { spec, horizonUs, random } = this.#client;
    const endUs = Math.min(window.endUs, horizonUs);
    const ratePerS = this.#rates.ratePerS(spec, window, endUs);
    const durationUs = endUs - window.startUs;
    const count = ratePerS > 0 ? Math.ceil(ratePerS * (durationUs / 1e6)) : 0;
    const { held } = this.#client;
    held.give(this.#gapsUs.length * gapBytes);
    this.#gapsUs = noGaps;
    held.take(count * gapBytes, spec.id);
    this.#gapsUs = new Float64Array(count);
    this.#used = 0;
    this.#atUs = window.startUs;
    this.#endUs = endUs;
    if (count === 0) return;
    const gaps = arrivalSampler(window.arrival ?? spec.arrival, ratePerS / 1e6);
    for (let i = 0; i < count; i++) this.#gapsUs[i] = gaps.next(random);
    stretchGaps(this.#gapsUs, durationUs);
    this.#inputLength =
      window.inputLength === undefined ? this.#client.inputLength : lengthSampler(window.inputLength);
    this.#outputLength =
      window.outputLength === undefined ? this.#client.outputLength : lengthSampler(window.outputLength);
    if (this.#sessions !== undefined) this.#drawSessions();
  }

  /** Conversations of the open window: rounds that would arrive after its end are left out. */
  #drawSessions(): void {
    const single = this.#client.spec.reasoning!.multiTurn!.singleSession;
    for (let us = this.#nextArrivalUs(); us !== Infinity; us = this.#nextArrivalUs()) {
      this.#used++;
      this.#atUs = us;
      const rounds = this.#sessions!.draw(
        this.#client.random,
        us,
        { rounds: Infinity, untilUs: this.#endUs },
        this.#inputLength,
        this.#outputLength,
        this.#silentOrigin,
      );
      for (const request of rounds) this.#wait(request);
      if (single) break;
    }
    this.#used = this.#gapsUs.length;
  }
}
