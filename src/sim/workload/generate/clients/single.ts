/**
 * Requests that have nothing to do with one another: one arrival, one turn, behind the prefix of the client's
 * group.
 */

import type { ArrivalSampler } from '../../../random/index.ts';
import { deadlineUs, type WorkloadRequest } from '../../request.ts';
import { isClosedLoop } from '../../spec/types.ts';
import type { ChosenPrefix } from '../behavior/index.ts';
import { type Client, type ClientStream, isActive, lastEndUs, requireHits, type Turn } from './client.ts';

export class SingleStream implements ClientStream {
  readonly #client: Client;
  readonly #gaps: ArrivalSampler;
  readonly #lastEndUs: number;
  readonly #session: boolean;
  #nowUs = 0;
  #misses = 0;

  constructor(client: Client, gaps: ArrivalSampler) {
    this.#client = client;
    this.#gaps = gaps;
    this.#lastEndUs = lastEndUs(client.spec.windows);
    this.#session = isClosedLoop(client.spec);
  }

  next(): WorkloadRequest | undefined {
    const { spec, horizonUs } = this.#client;
    const random = this.#client.random;
    while (this.#nowUs < horizonUs) {
      const gapUs = this.#gaps.next(random);
      if (gapUs === 0) return undefined;
      this.#nowUs += gapUs;
      if (this.#nowUs >= horizonUs) return undefined;
      if (isActive(this.#nowUs, spec.windows)) {
        this.#misses = 0;
        const deadline = deadlineUs(this.#nowUs, spec.timeoutUs, this.#session);
        this.#client.arrivedAfter(gapUs);
        const chosen = this.#client.prefixOf(random);
        return singleRequest(this.#client, this.#nowUs, this.#client.drawRequest(random), chosen, deadline);
      }
      if (this.#nowUs >= this.#lastEndUs) return undefined;
      requireHits(++this.#misses, spec);
    }
    return undefined;
  }
}

export function singleRequest(
  client: Client,
  arrivalUs: number,
  turn: Turn,
  { prefix, origin }: ChosenPrefix,
  deadline: number,
): WorkloadRequest {
  return {
    id: '',
    origin,
    arrivalUs,
    inputTokens: prefix.tokens + turn.inputTokens,
    outputTokens: turn.outputTokens,
    prefixTokens: prefix.tokens,
    prompt: { kind: 'drawn', spans: prefix.tokens === 0 ? [turn.input] : [...prefix.spans, turn.input] },
    output: { kind: 'drawn', spans: [turn.output] },
    deadlineUs: deadline,
    sessionId: '',
    session: -1,
    round: 0,
    streaming: client.spec.streaming,
    modalities: turn.modalities,
    reasonRatio: 0,
    thinkTimeUs: 0,
    recordedPrefixGroup: origin.prefixGroup,
  };
}
