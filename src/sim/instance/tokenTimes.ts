/**
 * When tokens came out. All requests that decode in a step get their token at its end, so the instance keeps
 * one time a step and one count a gap, and walks over no batch. A request remembers the step that gave it its
 * first token; the sum of its gaps is the difference of two entries here.
 */

import type { StateVisitor } from '../../runtime/snapshot/index.ts';
import { ValueCounts } from '../metrics/index.ts';
import type { SimRequest } from './simRequest.ts';

export class TokenTimes {
  /** Gaps between tokens of requests that completed or still run. */
  readonly gaps: ValueCounts = new ValueCounts();
  /** Steps begun so far. */
  steps = 0;
  /** From the engine's last token to the client, added to every gap. */
  readonly #processingUs: number;
  #endsUs: Float64Array = new Float64Array(1024);

  constructor(processingUs: number) {
    this.#processingUs = processingUs;
  }

  /** A step that ends at `endUs` gives `decodes` requests a token each that is not their first. */
  note(endUs: number, decodes: number): void {
    const step = this.steps++;
    if (step === this.#endsUs.length) this.#grow();
    this.#endsUs[step] = endUs;
    if (decodes > 0) this.gaps.add(this.#gapUs(step), decodes);
  }

  /** The step that now begins, or is being noted, ended at this time. */
  endUs(step: number): number {
    return this.#endsUs[step];
  }

  /**
   * Closes the books on the tokens since the request joined the batch, up to step `last`: their gaps become
   * part of `gapUs` and `gaps`.
   */
  settle(request: SimRequest, last: number): void {
    const first = request.startedStep;
    if (first === -1) return;
    const { skipped } = request;
    // what a step leaves out at the very end brought no token
    let end = last;
    while (skipped !== null && skipped.length > 0 && skipped[skipped.length - 1] === end) {
      skipped.pop();
      end--;
    }
    const tokens = end - first - (skipped?.length ?? 0);
    request.gaps += tokens;
    request.gapUs += this.#endsUs[end] - this.#endsUs[first] + tokens * this.#processingUs;
    request.lastTokenUs = this.#endsUs[end];
    if (skipped !== null && skipped.length > 0) this.#joinGaps(skipped);
    request.startedStep = -1;
    request.skipped = null;
  }

  /** As `settle`, for a request that gives way and keeps its tokens; it may still end without completing. */
  pause(request: SimRequest, last: number): void {
    const first = request.startedStep;
    if (first === -1) return;
    const past = (request.pastGapsUs ??= []);
    let fromUs = this.#endsUs[first];
    for (let step = first + 1; step <= last; step++) {
      if (request.skipped?.includes(step) === true) continue;
      past.push(this.#endsUs[step] - fromUs + this.#processingUs);
      fromUs = this.#endsUs[step];
    }
    this.settle(request, last);
  }

  /** Takes the gaps of a request that does not complete, or not with these tokens, out again. */
  forget(request: SimRequest, last: number): void {
    if (request.pastGapsUs !== null) for (const gapUs of request.pastGapsUs) this.gaps.add(gapUs, -1);
    request.pastGapsUs = null;
    const first = request.startedStep;
    if (first === -1) return;
    const { skipped } = request;
    let at = 0;
    for (let step = first + 1; step <= last; step++) {
      if (skipped !== null && skipped[at] === step) at++;
      else this.gaps.add(this.#gapUs(step), -1);
    }
    request.startedStep = -1;
    request.skipped = null;
  }

  /** The first token after a preemption: its gap reaches back to the last one before. */
  resume(request: SimRequest, endUs: number): void {
    const gapUs = endUs - request.lastTokenUs + this.#processingUs;
    this.gaps.add(gapUs, 1);
    request.pastGapsUs?.push(gapUs);
    request.gapUs += gapUs;
    request.gaps++;
  }

  #gapUs(step: number): number {
    return this.#endsUs[step] - this.#endsUs[step - 1] + this.#processingUs;
  }

  /** A step that left the request out makes the gap before its next token longer. */
  #joinGaps(skipped: readonly number[]): void {
    for (let i = 0; i < skipped.length; ) {
      const before = skipped[i] - 1;
      let step = skipped[i];
      for (; skipped[i] === step; i++) step++;
      this.gaps.add(this.#gapUs(step), -1);
      this.gaps.add(this.#endsUs[step] - this.#endsUs[before] + this.#processingUs, 1);
    }
  }

  #grow(): void {
    const grown = new Float64Array(2 * this.#endsUs.length);
    grown.set(this.#endsUs);
    this.#endsUs = grown;
  }

  visitState(visitor: StateVisitor): void {
    this.steps = visitor.number(this.steps);
    this.#endsUs = visitor.growing(this.#endsUs);
    this.gaps.visitState(visitor);
  }
}
