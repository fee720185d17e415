/**
 * Files of an origin under damage and under tabs that die: what a store gives back as right has to be right, and what was
 * durable before a tab died has to be there. The test runs a slice, `npm run campaign -- tabs` all of it.
 */

import type { BrowserContext } from 'playwright-core';
import type { StoreLook } from './inPage/storeLook.ts';
import type { WorkerPages, WorkerTab } from './workerPage.ts';

export interface FilesFound {
  /** Blocks that came back as right and were not. */
  wrong: number;
  /** Blocks that were durable and are gone. */
  lost: number;
  /** Blocks that were read and right, and that the store refused. */
  right: number;
  refused: number;
  /** Rounds in which something was refused or missing: without any the damage did nothing. */
  noticed: number;
  rounds: number;
}

const nothing = (): FilesFound => ({ wrong: 0, lost: 0, right: 0, refused: 0, noticed: 0, rounds: 0 });

function note(found: FilesFound, look: StoreLook): void {
  found.wrong += look.wrong;
  found.right += look.right;
  found.refused += look.refused;
}

/**
 * Fills a store, damages its files and looks, again and again.
 * @param verifyReads false: the control, in which damage has to show as wrong bytes
 */
export async function damagedFiles(
  tab: WorkerTab,
  {
    rounds,
    seed,
    verifyReads = true,
  }: { readonly rounds: number; readonly seed: number; readonly verifyReads?: boolean },
): Promise<FilesFound> {
  const found = nothing();
  for (let round = 0; round < rounds; round++) {
    const dir = `damaged/${seed}-${verifyReads}`;
    const written = await tab.call<number>('fill', dir, round + 1);
    for (let i = 0; i < 3; i++) await tab.call<string>('damage', dir, 1000 * seed + 3 * round + i);
    // a file that is cut or changed at its head is told as an error, and a new store is made
    const look = await tab.call<StoreLook>('look', dir, verifyReads).catch((error: Error) => error);
    found.rounds++;
    if (look instanceof Error) {
      if (!/TKV_(MISMATCH|IO)/.test(look.message)) throw look;
      found.noticed++;
      await tab.call('remove', dir);
      continue;
    }
    note(found, look);
    if (look.right < written) found.noticed++;
  }
  return found;
}

interface Durable {
  readonly durable: Readonly<Record<number, number>>;
  readonly generation: number;
}

/** A tab writes until it is killed; another one opens the files and looks. */
export async function killedTabs(
  pages: WorkerPages,
  context: BrowserContext,
  { rounds, seed }: { readonly rounds: number; readonly seed: number },
): Promise<FilesFound> {
  const found = nothing();
  const watcher = await pages.open(context);
  let generation = 1;
  for (let round = 0; round < rounds; round++) {
    const dir = `killed/${seed}`;
    const tab = await pages.open(context);
    // how much is durable before it dies differs
    const points = 1 + (round % 5);
    const writing = tab.call('writeOn', dir, seed + round, generation, points);
    writing.catch(() => {}); // a call of a tab that was killed fails
    // a call that fails before says why
    const isTold = tab.page.waitForFunction(
      () => (globalThis as unknown as { said: unknown[] }).said.length > 0,
    );
    isTold.catch(() => {});
    await Promise.race([isTold, writing]);
    const said = await tab.said<Durable>();
    await crash(tab);
    await writing.catch(() => {});
    const [last] = said;
    const look = await watcher.call<StoreLook>('look', dir, true);
    note(found, look);
    for (const [slot, durable] of Object.entries(last.durable)) {
      if ((look.generations[Number(slot)] ?? 0) < durable) found.lost++;
    }
    found.rounds++;
    if (look.recoveredFrom.startsWith('all records')) found.noticed++;
    generation = Math.max(last.generation, ...Object.values(look.generations)) + 1000;
  }
  await watcher.page.close();
  return found;
}

/** Kills the tab's process: nothing of it runs on. */
export async function crash({ page }: WorkerTab): Promise<void> {
  const session = await page.context().newCDPSession(page);
  const gone = new Promise((resolve) => page.once('crash', resolve));
  session.send('Page.crash').catch(() => {}); // the answer never comes
  await gone;
  await page.close();
}

export interface FilesCampaign {
  readonly damaged: FilesFound;
  readonly killed: FilesFound;
  /** The same damage under a store that does not compare what it reads. */
  readonly control: FilesFound;
}

/** Both, with the control. @param mutations rounded up to rounds of three */
export async function filesCampaign(
  pages: WorkerPages,
  context: BrowserContext,
  { mutations, kills, seed }: { readonly mutations: number; readonly kills: number; readonly seed: number },
): Promise<FilesCampaign> {
  const tab = await pages.open(context);
  const rounds = Math.ceil(mutations / 3);
  const damaged = await damagedFiles(tab, { rounds, seed });
  const control = await damagedFiles(tab, { rounds: Math.max(rounds, 20), seed, verifyReads: false });
  await tab.page.close();
  return { damaged, control, killed: await killedTabs(pages, context, { rounds: kills, seed }) };
}
