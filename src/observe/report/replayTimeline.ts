/**
 * Events of a replay over the time of its trace, gathered while it runs and in bounded memory: what each request found,
 * how full the tiers were, what moved and what was lost.
 */

import type { KVManager } from '../../runtime/index.ts';
import type { ReplayedRequest } from '../../studies/replay/options.ts';
import { CacheMeasures } from '../metrics/cacheMeasures.ts';
import { type TimelineLane, type TimelineRequest, type TimelineSection, tierTitle } from './model.ts';
import { TimeBins } from './timeBins.ts';

/** Requests that are kept: beyond, every second one goes, and from then on every second one is kept. */
const REQUESTS_KEPT = 40_000;

export class ReplayTimeline {
  readonly #bins: TimeBins = new TimeBins();
  #cache: CacheMeasures | undefined;
  #requests: TimelineRequest[] = [];
  #stride = 1;
  #count = 0;
  #found: readonly number[] = [];
  #lost: readonly [evicted: number, dropped: number] = [0, 0];
  #linkBytes: readonly number[] = [];

  /** Watches the manager from now on. @returns what is to be told of each request that has ended */
  watch(manager: KVManager): (request: ReplayedRequest) => void {
    const cache = new CacheMeasures(manager);
    this.#cache = cache;
    this.#found = manager.inspect.tiers.map(() => 0);
    return (request) => this.#see(request, cache);
  }

  #see({ number, arrivalUs, tookUs, blocks, blockTokens }: ReplayedRequest, cache: CacheMeasures): void {
    const { tiers, links, manager } = cache;
    const bins = this.#bins;
    const found = tiers.map(({ hitBlocks }) => hitBlocks);
    const here = found.map((all, i) => all - this.#found[i]);
    this.#found = found;
    const computed = Math.max(0, blocks - here.reduce((sum, each) => sum + each, 0));
    for (const [i, count] of here.entries()) {
      bins.add(`found ${i}`, arrivalUs, blocks === 0 ? 0 : count / blocks);
      const { residentBytes, sizeBytes } = manager.inspect.usage(i);
      bins.add(`tier ${i}`, arrivalUs, sizeBytes === 0 ? 0 : residentBytes / sizeBytes);
    }
    const lost = [
      tiers.reduce((sum, { evictedBlocks }) => sum + evictedBlocks, 0),
      tiers.reduce((sum, { droppedBlocks }) => sum + droppedBlocks, 0),
    ] as const;
    for (const i of [0, 1] as const) bins.add(`lost ${i}`, arrivalUs, lost[i] - this.#lost[i]);
    this.#lost = lost;
    const bytes = links.map((link) => link.bytes);
    for (const [i, all] of bytes.entries()) bins.add(`link ${i}`, arrivalUs, all - (this.#linkBytes[i] ?? 0));
    this.#linkBytes = bytes;
    this.#count++;
    if (number % this.#stride !== 0) return;
    const parts = here.flatMap((count, i) => (count > 0 ? [`${count} in ${tierTitle(tiers[i].tier)}`] : []));
    const arrivalS = arrivalUs / 1e6;
    this.#requests.push({
      id: `request ${number}`,
      arrivalS,
      joinedS: null,
      firstTokenS: null,
      endS: arrivalS + tookUs / 1e6,
      where: '',
      promptTokens: blocks * blockTokens,
      outputTokens: 0,
      status: computed === 0 ? 'found whole' : computed === blocks ? 'found nothing' : 'found in part',
      note: `of its ${blocks} blocks ${[...parts, `${computed} computed`].join(', ')}`,
    });
    if (this.#requests.length <= REQUESTS_KEPT) return;
    this.#stride *= 2;
    this.#requests = this.#requests.filter((_, i) => i % 2 === 0);
  }

  /** @param clock what the length of a request's bar is */
  section(clock: string): TimelineSection {
    const { tiers = [], links = [] } = this.#cache ?? {};
    const titles = tiers.map(({ tier }) => tierTitle(tier));
    const lanes: TimelineLane[] = [
      {
        name: 'blocks found, share of those asked for',
        unit: 'share',
        isStacked: true,
        series: titles.map((name, i) => ({ name, points: this.#bins.means(`found ${i}`) })),
      },
      {
        name: 'tiers in use, share',
        unit: 'share',
        series: titles.map((name, i) => ({ name, points: this.#bins.means(`tier ${i}`) })),
      },
      {
        name: 'bytes moved, by link',
        unit: 'bytesPerS',
        series: links.map(({ from, to }, i) => ({
          name: `${titles[from]} to ${titles[to]}`,
          points: this.#bins.rates(`link ${i}`),
        })),
      },
      {
        name: 'blocks evicted, and of these dropped, a second',
        unit: 'perS',
        series: ['evicted', 'dropped'].map((name, i) => ({ name, points: this.#bins.rates(`lost ${i}`) })),
      },
    ];
    return {
      kind: 'timeline',
      title: 'What happened when',
      note: `Seconds are those of the trace. The bar of a request is ${clock}.`,
      lanes: lanes.filter(({ series }) => series.some(({ points }) => points.some(([, value]) => value > 0))),
      events: [],
      requests: this.#requests,
      requestsInAll: this.#count,
      parts: [clock],
    };
  }
}
