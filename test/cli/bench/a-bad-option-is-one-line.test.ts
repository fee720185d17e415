import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { main } from '../../command.ts';

it.each([
  [['bench', '--quick'], /--quick is about bench links/],
  [['bench', '--sustained'], /--sustained is about bench links/],
  [['bench', '--adapter', 'no such adapter'], /adapter/],
  [['bench', 'nonsense'], /'nonsense' is invalid for argument 'what'.*links, manager, remote, all/],
  [
    ['bench', 'manager', '--plot', 'x.svg'],
    /--plot draws links, and bench manager measures no links\. Leave it out/,
  ],
  [['bench', 'links', '--json', '/no/such/dir/x'], /\/no\/such\/dir\/x cannot be written/],
  [['bench', 'links', '--quick', '--dir', '/no/such/dir'], /no directory can be made in \/no\/such\/dir/],
  [['bench', 'links', '--quick', '--adapter', 'no such adapter'], /adapter/],
  [['bench', 'manager', '--sustained'], /--sustained is about links/],
  [['bench', 'links', '--sustained', '--quick'], /--sustained excludes --quick/],
  [['bench', 'links', '--fio', 'x.fio'], /--fio has no --sustained/],
  [['calibrate'], /--out is missing/],
  [['calibrate', '--out', '/no/such/dir/x'], /\/no\/such\/dir\/x cannot be written/],
])('%j', (args, says) => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [main, ...args], { encoding: 'utf8' });
  expect(stderr.trim()).toMatch(says);
  expect(stderr.trim().split('\n')).toHaveLength(1);
  expect(stdout).toBe('');
  expect(status).toBe(2);
});
