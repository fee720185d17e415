/**
 * Patterns that go with bad outcomes: properties of requests and of the decisions about them, by how much
 * more often they are found among the bad than among all (the lift), each with how many it is about.
 */

import { groupBy, percent, type RequestFact } from './facts.ts';
import { crowding } from './issues.ts';

export interface Pattern {
  readonly what: string;
  /** Requests that have it, and of these the bad ones. */
  readonly support: number;
  readonly bad: number;
  readonly lift: number;
}

/** Fewer are no pattern. */
const SUPPORT_MIN = 5;

function size(tokens: number): string {
  if (tokens < 512) return 'under 512';
  if (tokens < 2048) return '512 to 2047';
  return tokens < 8192 ? '2048 to 8191' : '8192 and more';
}

function properties({ tenant, sloClass, promptTokens, routing, preemptions }: RequestFact): string[] {
  const about = [
    `tenant ${tenant || 'none'}`,
    `class ${sloClass || 'none'}`,
    `prompt of ${size(promptTokens)} tok`,
  ];
  if (preemptions > 0) about.push('gave way at least once');
  if (routing === undefined) return [...about, 'never routed'];
  const beyond = crowding(routing);
  about.push(
    `sent to instance ${routing.chosenInstance}`,
    routing.cacheHit ? 'found cached blocks' : 'found no cached block',
    beyond === 0
      ? 'sent to the least busy instance'
      : beyond < 4
        ? '1 to 3 in flight above the least'
        : '4 and more in flight above the least',
  );
  return about;
}

/** Bad: missed its targets; where all met them, among the slowest tenth to the first token. */
export function badRequests(requests: readonly RequestFact[]): ReadonlySet<RequestFact> {
  const missed = requests.filter(({ good }) => !good);
  if (missed.length > 0) return new Set(missed);
  const slow = [...requests].sort((a, b) => b.ttftMs - a.ttftMs || (a.id < b.id ? -1 : 1));
  return new Set(slow.slice(0, Math.ceil(requests.length / 10)));
}

/** Single properties and pairs of them, the highest lift first; pairs only where they say more than each. */
export function patternsOf(requests: readonly RequestFact[], most: number): Pattern[] {
  const bad = badRequests(requests);
  const base = bad.size / Math.max(1, requests.length);
  const tagged = requests.map((request) => ({ request, tags: properties(request) }));
  const counted = (keys: (tags: readonly string[]) => readonly string[]): Pattern[] => {
    const flat = tagged.flatMap(({ request, tags }) => keys(tags).map((key) => ({ key, request })));
    return [...groupBy(flat, ({ key }) => key)].map(([what, all]) => {
      const hits = all.filter(({ request }) => bad.has(request)).length;
      return { what, support: all.length, bad: hits, lift: hits / all.length / base };
    });
  };
  const singles = counted((tags) => tags);
  const liftOf = new Map(singles.map(({ what, lift }) => [what, lift]));
  const pairs = counted((tags) =>
    tags.flatMap((a, i) => tags.slice(i + 1).map((b) => `${a} and ${b}`)),
  ).filter(({ what, lift }) => {
    return what.split(' and ').every((part) => lift > 1.2 * (liftOf.get(part) ?? 0));
  });
  return [...singles, ...pairs]
    .filter(({ support, lift }) => support >= SUPPORT_MIN && lift > 1.1)
    .sort((a, b) => b.lift * Math.sqrt(b.bad) - a.lift * Math.sqrt(a.bad) || (a.what < b.what ? -1 : 1))
    .slice(0, most);
}

export function patternLine({ what, support, bad, lift }: Pattern): string {
  return (
    `${what}: ${bad} of ${support} went badly (${percent(bad / support)}), ` +
    `${lift.toFixed(1)} times the average`
  );
}
