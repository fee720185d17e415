/** Writes test/tidy/debts.json anew: `node test/tidy/run.ts`. Look at the difference: an entry that is new is a step back. */

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { debts } from './exceptions.ts';
import { tidyFindings } from './tidyProject.ts';

const { places, phrases } = tidyFindings();
const why: Record<string, string> = {
  size: 'stands since the move: find the second idea, or give the reason',
  forwarding: 'stands since the move: call the inner method, or make this the implementation',
  'command-line': 'stands since the move: what it uses belongs to the library',
  'one-mechanism': 'stands since the move: one worker pool is to come',
};
const kept = Object.fromEntries(
  places.map(({ rule, at }) => [
    `${rule} ${at}`,
    debts.places[`${rule} ${at}`] ?? why[rule] ?? 'to be mended',
  ]),
);
const file = join(import.meta.dirname, 'debts.json');
const before = readFileSync(file, 'utf8');
const after = `${JSON.stringify({ places: kept, phrases: Object.fromEntries(phrases) }, null, 2)}\n`;
if (after !== before) writeFileSync(file, after);
