/**
 * A run as a Chrome trace (the Trace Event Format of about:tracing and Perfetto): a process an instance, its
 * steps on one line, and each request as a span from its arrival to its end. It stops at a number of events,
 * and says so in the file.
 */

import type { SimulationObserver, StepSpan } from '../cluster/index.ts';
import type { SimRequest } from '../instance/index.ts';
import { type Status, statusNames } from '../metrics/index.ts';

interface TraceEvent {
  readonly name: string;
  readonly ph: 'X' | 'b' | 'e' | 'M';
  readonly ts: number;
  readonly pid: number;
  readonly tid: number;
  readonly dur?: number;
  readonly cat?: string;
  readonly id?: string;
  readonly args?: Readonly<Record<string, unknown>>;
}

export class ChromeTrace implements SimulationObserver {
  readonly #most: number;
  readonly #events: TraceEvent[] = [];
  /** Events that there was no room for. */
  left = 0;

  constructor(mostEvents: number) {
    this.#most = mostEvents;
  }

  step({ instance, startUs, endUs, tokens, decodes, prefills, transferUs }: StepSpan): void {
    this.#add({
      name: prefills > 0 ? 'prefill' : 'decode',
      ph: 'X',
      ts: startUs,
      dur: endUs - startUs,
      pid: instance,
      tid: 0,
      args: { tokens, decodes, prefills, transferUs },
    });
  }

  ended(request: SimRequest, status: Status, timeUs: number, instance: number): void {
    const span = { name: request.id, cat: 'request', id: String(request.number), pid: instance, tid: 1 };
    const { promptTokens } = request;
    const outputTokens = request.workload.outputTokens;
    const args = { promptTokens, outputTokens, status: statusNames[status] };
    if (!this.#add({ ...span, ph: 'b', ts: request.arrivalUs, args })) return;
    this.#events.push({ ...span, ph: 'e', ts: timeUs });
  }

  /** The file in parts. @param ids of the instances @param provenance what the run was */
  *text(ids: readonly string[], provenance: unknown): Generator<string> {
    const names: TraceEvent[] = ids.map((name, pid) => ({
      name: 'process_name',
      ph: 'M',
      ts: 0,
      pid,
      tid: 0,
      args: { name },
    }));
    yield '{"traceEvents":[\n';
    let isFirst = true;
    for (const event of [...names, ...this.#events]) {
      yield `${isFirst ? '' : ',\n'}${JSON.stringify(event)}`;
      isFirst = false;
    }
    yield `\n],"otherData":${JSON.stringify({ provenance, eventsLeftOut: this.left })}}\n`;
  }

  #add(event: TraceEvent): boolean {
    if (this.#events.length >= this.#most) {
      this.left++;
      return false;
    }
    this.#events.push(event);
    return true;
  }
}
