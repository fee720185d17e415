/**
 * Users in closed loop: each sends one request at the start, spread over a think time, and from then on one a
 * think time after the last has finished. Seeds of users and of their sessions come in turns from one stream,
 * client by client.
 */

import { TierKVError } from '../../../../runtime/errors.ts';
import { GoRandom, lengthSampler } from '../../../random/index.ts';
import { deadlineUs, type WorkloadRequest } from '../../request.ts';
import type { ClientSpec } from '../../spec/types.ts';
import { EarliestFirst, NO_PREFIX, originOf, type Prefix, spanTurn } from '../clients/index.ts';

const CONCURRENCY_SEED_OFFSET = 10_007n;
const MAX_USERS = 10_000_000;

/** The users of all concurrency clients, as far as the request limit lets them in. */
export interface ConcurrencyUsers {
  /** Index of the client of each user, user number within it, seeds of first request and session. */
  readonly clientOf: Int32Array;
  readonly userOf: Int32Array;
  readonly requestSeeds: BigInt64Array;
  readonly sessionSeeds: BigInt64Array;
  /** Users that the spec asks for, admitted or not. */
  readonly asked: number;
}

/** @param room how many more requests the limit admits; Infinity = any number. */
export function admitUsers(clients: readonly ClientSpec[], seed: bigint, room: number): ConcurrencyUsers {
  const random = new GoRandom(BigInt.asIntN(64, seed + CONCURRENCY_SEED_OFFSET));
  let asked = 0;
  for (const client of clients) asked += client.concurrency;
  const admitted = Math.max(0, Math.min(asked, room));
  if (admitted > MAX_USERS) {
    throw new TierKVError(
      'TKV_INPUT',
      `concurrency asks for ${admitted} users in all, more than ${MAX_USERS}. Lower it, or set num_requests`,
      { field: 'concurrency' },
    );
  }
  const users: ConcurrencyUsers = {
    clientOf: new Int32Array(admitted),
    userOf: new Int32Array(admitted),
    requestSeeds: new BigInt64Array(admitted),
    sessionSeeds: new BigInt64Array(admitted),
    asked,
  };
  let at = 0;
  clients.forEach((client, index) => {
    for (let user = 0; user < client.concurrency && at < admitted; user++, at++) {
      users.clientOf[at] = index;
      users.userOf[at] = user;
      users.requestSeeds[at] = random.int63();
      users.sessionSeeds[at] = random.int63();
    }
  });
  return users;
}

/** u · think / users, rounded down, without leaving 53 bits. */
function staggerUs(user: number, thinkTimeUs: number, users: number): number {
  if (users <= 1) return 0;
  return user * Math.floor(thinkTimeUs / users) + Math.floor((user * (thinkTimeUs % users)) / users);
}

/** The first requests of the users, merged over clients; `session` numbers count from `firstSession`. */
export class ConcurrencyStream {
  readonly #clients: readonly ClientSpec[];
  readonly #prefixes: ReadonlyMap<string, Prefix>;
  readonly #users: ConcurrencyUsers;
  readonly #firstSession: number;
  readonly #heap = new EarliestFirst<number>();
  readonly #random = new GoRandom(0n);

  constructor(
    clients: readonly ClientSpec[],
    prefixes: ReadonlyMap<string, Prefix>,
    users: ConcurrencyUsers,
    firstSession: number,
  ) {
    this.#clients = clients;
    this.#prefixes = prefixes;
    this.#users = users;
    this.#firstSession = firstSession;
    for (let at = 0; at < users.clientOf.length; at++) {
      if (at === 0 || users.clientOf[at] !== users.clientOf[at - 1])
        this.#heap.push(this.#arrivalUs(at), at, at);
    }
  }

  get timeUs(): number {
    return this.#heap.timeUs;
  }

  next(): WorkloadRequest | undefined {
    if (this.#heap.size === 0) return undefined;
    const at = this.#heap.first;
    const following = at + 1;
    if (
      following < this.#users.clientOf.length &&
      this.#users.clientOf[following] === this.#users.clientOf[at]
    ) {
      this.#heap.replaceFirst(this.#arrivalUs(following), following, following);
    } else {
      this.#heap.pop();
    }
    return this.#request(at);
  }

  #arrivalUs(at: number): number {
    const client = this.#clients[this.#users.clientOf[at]];
    return staggerUs(this.#users.userOf[at], client.thinkTimeUs, client.concurrency);
  }

  #request(at: number): WorkloadRequest {
    const spec = this.#clients[this.#users.clientOf[at]];
    const prefix = this.#prefixes.get(spec.prefixGroup) ?? NO_PREFIX;
    const arrivalUs = this.#arrivalUs(at);
    const seed = this.#users.requestSeeds[at];
    this.#random.seek(seed, 0);
    const inputTokens = lengthSampler(spec.inputLength).next(this.#random);
    const outputTokens = lengthSampler(spec.outputLength).next(this.#random);
    const turn = spanTurn(seed, this.#random, inputTokens, outputTokens);
    return {
      id: '',
      origin: originOf(spec),
      arrivalUs,
      inputTokens: prefix.tokens + inputTokens,
      outputTokens,
      prefixTokens: prefix.tokens,
      prompt: { kind: 'drawn', spans: [...prefix.spans, turn.input] },
      output: { kind: 'drawn', spans: [turn.output] },
      deadlineUs: deadlineUs(arrivalUs, spec.timeoutUs, true),
      sessionId: `concurrency_${spec.id}_user_${this.#users.userOf[at]}`,
      session: this.#firstSession + at,
      round: 0,
      streaming: spec.streaming,
      modalities: null,
      reasonRatio: 0,
      thinkTimeUs: 0,
      recordedPrefixGroup: spec.prefixGroup,
    };
  }
}
