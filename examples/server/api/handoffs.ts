/**
 * Prefill and decode in two servers: what this server does with `kv_transfer_params`. All of the protocol is in
 * `tierkv/serve`; here a role says which legs of a request are taken.
 *
 *     prefill leg   offered -> submitted -> answered with a reference, early or when it is computed
 *     decode leg    the reference's blocks are fetched -> submitted: what did not come is computed
 */

import { randomUUID } from 'node:crypto';
import {
  HandoffReceiver,
  HandoffSender,
  type TransferParams,
  transferAnswer,
  transferWish,
} from '../../../src/serve/index.ts'; // in your project: 'tierkv/serve'
import type { Answer, Engine } from '../engine/index.ts';
import { ApiError } from './apiError.ts';

export const roles = ['prefill', 'decode', 'both'] as const;
export type Role = (typeof roles)[number];

export interface HandoffOptions {
  readonly role: Role;
  /** Where other servers fetch blocks from this one; undefined: they go by the shared tier. */
  readonly listen?: { readonly host: string; readonly port: number; readonly advertise: string } | undefined;
  readonly leaseMs: number;
  /** When a prefill leg is answered: as soon as its prompt is offered, or when it is computed. */
  readonly answer: 'early' | 'whole';
}

/** What a request asks for by `kv_transfer_params`. */
export type Leg = 'whole' | 'prefill' | { readonly decode: TransferParams };

/** A prefill leg that is under way. */
export interface PrefillLeg {
  readonly running: Answer;
  /** The fields of the answer, where there is a block to fetch. */
  readonly params: object | null;
  /** Whether all of it is computed. */
  readonly isWhole: boolean;
}

export class Handoffs {
  readonly role: Role;
  readonly #engine: Engine;
  readonly #sender: HandoffSender | undefined;
  readonly #receiver: HandoffReceiver | undefined;
  readonly #answersEarly: boolean;
  /** Names this process to the servers that fetch from it. */
  readonly #name: string = randomUUID();

  private constructor(
    engine: Engine,
    { role, answer, listen }: HandoffOptions,
    sender: HandoffSender | undefined,
    receiver: HandoffReceiver | undefined,
  ) {
    this.role = role;
    this.#engine = engine;
    this.#sender = sender;
    this.#receiver = receiver;
    this.#answersEarly = answer === 'early' && listen !== undefined;
  }

  /** @throws TKV_CONFIG naming what the role lacks */
  static async open(
    engine: Engine,
    options: HandoffOptions,
    notice: (line: string) => void,
  ): Promise<Handoffs> {
    const { role, listen, leaseMs } = options;
    const { kv } = engine.cache;
    const receiver = role === 'prefill' ? undefined : new HandoffReceiver(kv, { notice });
    const sender =
      role === 'decode'
        ? undefined
        : await HandoffSender.open(kv, { leaseMs, notice, ...(listen === undefined ? {} : { listen }) });
    return new Handoffs(engine, options, sender, receiver);
  }

  /** Where other servers fetch blocks; undefined where they do not, or by the shared tier. */
  get address(): string | undefined {
    const { host, port } = this.#sender?.address ?? { host: '', port: 0 };
    return port === 0 ? undefined : `${host}:${port}`;
  }

  /** The leg that the value of `kv_transfer_params` makes of a request. @throws {ApiError} 400 */
  leg(value: unknown): Leg {
    const refuse = (message: string): ApiError =>
      new ApiError(400, message, 'kv_transfer_params', 'unsupported_parameter');
    const wish = transferWish(value);
    if (wish.kind === 'wrong') throw refuse(`${wish.problem}.`);
    if (wish.kind === 'none') return 'whole';
    if (wish.kind === 'prefill') {
      if (this.#sender !== undefined) return 'prefill';
      throw refuse(
        'This server decodes, and hands no KV off. Send the prefill leg to a server with --role prefill.',
      );
    }
    if (this.#receiver !== undefined) return { decode: wish.params };
    throw refuse('This server computes prompts. Send the decode leg to a server with --role decode.');
  }

  /**
   * @param submit begins the request
   * @throws {ApiError} as `submit`; the reason of `signal`
   */
  async prefill(
    prompt: readonly number[],
    tenant: string,
    submit: () => Answer,
    signal: AbortSignal,
  ): Promise<PrefillLeg> {
    const sender = this.#sender as HandoffSender; // `leg` has seen that there is one
    const offer = await sender.offer(prompt, { tenant, signal });
    let running: Answer;
    try {
      running = submit();
    } catch (error) {
      offer.withdraw();
      throw error;
    }
    const whole = running.text().then(() => {
      if (running.finish === 'length' || running.finish === 'stop') offer.computed();
      else offer.withdraw();
    });
    void offer.ended.then(() => this.#engine.cancel(running)); // the rest is not waited for
    const params = offer.reference.units === 0 ? null : transferAnswer(offer.reference, this.#name);
    if (this.#answersEarly) return { running, params, isWhole: false };
    const cancel = (): void => this.#engine.cancel(running);
    signal.addEventListener('abort', cancel, { once: true });
    await whole;
    signal.removeEventListener('abort', cancel);
    if (offer.reference.way === 'shared') await offer.shared;
    return { running, params, isWhole: true };
  }

  /** Fetches what it can; what is missing then is computed. */
  async receive(
    params: TransferParams,
    prompt: readonly number[],
    tenant: string,
    signal: AbortSignal,
  ): Promise<void> {
    await this.#receiver?.receive(params, prompt, { tenant, signal });
  }

  /** For `/handoffs`. */
  describe(): object {
    return {
      role: this.role,
      sent: this.#sender?.describe() ?? null,
      received: this.#receiver?.describe() ?? null,
      recent: this.#receiver?.recent ?? [],
    };
  }

  async close(): Promise<void> {
    await this.#receiver?.close();
    await this.#sender?.close();
  }
}
