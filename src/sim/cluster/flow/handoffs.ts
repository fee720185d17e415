/**
 * The way of KV from prefill to decode instances. A request's blocks have one owner at any time:
 *
 *     local (prefill) --room on decode--> transferring --arrived--> transferred (decode owns them)
 *
 * Blocks wait on the prefill instance, and stay held there, until the decode instance has room for them. So a
 * full decode side fills the prefill side, which then takes no new prompts: that is the back-pressure, and
 * nothing is dropped. Links are those of the prefill instances: each carries one transfer after the other.
 */

import { requireFinite, requirePositive } from '../../../runtime/errors.ts';
import type { StateVisitor } from '../../../runtime/snapshot/index.ts';
import type { Instance, SimRequest } from '../../instance/index.ts';

export interface HandoffConfig {
  readonly baseLatencyUs: number;
  readonly bandwidthBytesPerS: number;
}

export type HandoffState = 'local' | 'transferring' | 'transferred';

/** One hand-off, as traces have it. */
export interface Handoff {
  readonly request: SimRequest;
  readonly from: number;
  readonly to: number;
  readonly blocks: number;
  readonly bytes: number;
  state: HandoffState;
  /** When the prompt was computed. */
  readonly readyUs: number;
  /** When its transfer began, and ended or will end; -1 before. */
  startUs: number;
  endUs: number;
}

export interface HandoffCounters {
  /** Hand-offs that had to wait for room on the decode side. */
  delayed: number;
  completed: number;
  bytes: number;
  /** Sum of the times that hand-offs waited for room, and that their transfers took with queueing. */
  waitedUs: number;
  transferUs: number;
  /** Most hand-offs that waited at a time. */
  longestQueue: number;
}

export class Handoffs {
  readonly counters: HandoffCounters = {
    delayed: 0,
    completed: 0,
    bytes: 0,
    waitedUs: 0,
    transferUs: 0,
    longestQueue: 0,
  };
  readonly #config: HandoffConfig;
  /** When each prefill instance's link is free. */
  readonly #freeAtUs: number[] = [];
  /** Hand-offs that wait for room, by decode instance, first come first served. */
  readonly #waiting: Handoff[][] = [];
  readonly #under = new Map<number, Handoff>();
  readonly #schedule: (timeUs: number, row: number) => void;

  /**
   * @param schedule calls `arrived` with the row at that time
   * @throws TKV_CONFIG for a bandwidth or latency out of range
   */
  constructor(config: HandoffConfig, schedule: (timeUs: number, row: number) => void) {
    requirePositive('handoff.bandwidthBytesPerS', config.bandwidthBytesPerS);
    requireFinite('handoff.baseLatencyUs', config.baseLatencyUs);
    this.#config = config;
    this.#schedule = schedule;
  }

  /** Hand-offs that wait or are under way. */
  get size(): number {
    return this.#under.size;
  }

  waitingFor(decode: number): number {
    return this.#waiting[decode]?.length ?? 0;
  }

  /** The request's prompt is computed on `from` by `readyUs`: until its blocks are gone, they stay there. */
  begin(request: SimRequest, from: Instance, to: Instance, nowUs: number, readyUs: number): void {
    const blocks = Math.ceil(request.promptTokens / from.blockTokens);
    from.engine.hold(request, nowUs);
    this.#under.set(request.number, {
      request,
      from: from.number,
      to: to.number,
      blocks,
      bytes: blocks * from.engine.blockBytes,
      state: 'local',
      readyUs,
      startUs: -1,
      endUs: -1,
    });
  }

  /** The step that computed the rest of the prompt has ended. */
  ready(row: number, to: Instance, nowUs: number): void {
    const handoff = this.#under.get(row);
    if (handoff === undefined) return;
    let queue = this.#waiting[to.number];
    if (queue === undefined) this.#waiting[to.number] = queue = [];
    queue.push(handoff);
    this.serve(to, nowUs);
    if (handoff.state !== 'local') return;
    this.counters.delayed++;
    this.counters.longestQueue = Math.max(this.counters.longestQueue, queue.length);
  }

  /** The decode instance may have room for those that wait for it. */
  serve(to: Instance, nowUs: number): void {
    const queue = this.#waiting[to.number];
    if (queue === undefined) return;
    while (queue.length > 0 && to.engine.reserve(queue[0].request, nowUs)) {
      this.#start(queue.shift() as Handoff, nowUs);
    }
  }

  /** The transfer has ended: the decode instance owns the blocks. */
  arrived(handoff: Handoff, from: Instance, to: Instance, nowUs: number): void {
    this.#under.delete(handoff.request.number);
    handoff.state = 'transferred';
    to.engine.fill(handoff.request, nowUs);
    from.engine.letGo(handoff.request, nowUs);
    this.counters.completed++;
    this.counters.bytes += handoff.bytes;
    this.counters.transferUs += nowUs - handoff.startUs;
  }

  /** The request is given up before its blocks have arrived. */
  cancel(handoff: Handoff, from: Instance, to: Instance, nowUs: number): void {
    this.#under.delete(handoff.request.number);
    from.engine.letGo(handoff.request, nowUs);
    if (handoff.state === 'transferring') to.engine.letGo(handoff.request, nowUs);
    const queue = this.#waiting[handoff.to] ?? [];
    const at = queue.indexOf(handoff);
    if (at !== -1) queue.splice(at, 1);
  }

  find(row: number): Handoff | undefined {
    return this.#under.get(row);
  }

  #start(handoff: Handoff, nowUs: number): void {
    const { baseLatencyUs, bandwidthBytesPerS } = this.#config;
    const startUs = Math.max(nowUs, this.#freeAtUs[handoff.from] ?? 0);
    const takesUs = Math.max(1, Math.ceil(baseLatencyUs + (handoff.bytes * 1e6) / bandwidthBytesPerS));
    handoff.state = 'transferring';
    handoff.startUs = nowUs;
    handoff.endUs = startUs + takesUs;
    this.#freeAtUs[handoff.from] = handoff.endUs;
    this.counters.waitedUs += nowUs - handoff.readyUs;
    this.#schedule(handoff.endUs, handoff.request.number);
  }

  visitState(visitor: StateVisitor, requestOf: (row: number) => SimRequest): void {
    visitor.fields(this.counters);
    visitor.list(this.#freeAtUs);
    visitor.value(
      () => [...this.#under.values()].map((handoff) => ({ ...handoff, request: handoff.request.number })),
      (saved) => {
        this.#under.clear();
        for (const one of saved) this.#under.set(one.request, { ...one, request: requestOf(one.request) });
      },
    );
    visitor.value(
      () => Array.from(this.#waiting, (queue) => queue?.map(({ request }) => request.number) ?? []),
      (saved) => {
        this.#waiting.length = 0;
        for (const rows of saved) this.#waiting.push(rows.map((row) => this.#under.get(row) as Handoff));
      },
    );
  }
}
