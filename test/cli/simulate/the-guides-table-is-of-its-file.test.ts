/** The table of docs/guide/simulate.md on host memory is what the deployment file comes to now; its first row, for time. */

import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { printedTable, tieredPage, tieredTable } from '../../../tools/tieredTable.ts';

it('is made again with: node tools/tieredTable.ts', () => {
  const printed = printedTable(readFileSync(tieredPage, 'utf8')).split('\n');
  expect(printed).toHaveLength(5);
  expect(printed.slice(0, 3)).toEqual(tieredTable([25]).split('\n'));
});
