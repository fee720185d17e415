import { expect, it } from 'vitest';
import {
  configError,
  faultAt,
  lineError,
  namedError,
  nearestName,
  renamed,
  TierKVError,
} from '../../src/runtime/errors.ts';

const told = (error: unknown): Record<string, unknown> => {
  expect(error).toBeInstanceOf(TierKVError);
  const { code, message, field, path, line } = error as TierKVError;
  return { code, message, field, path, line };
};

it('a name is only where the sentence names its field, and stays where a text merely holds the word', () => {
  const error = configError('dir', 'is "dir", and dir/dir does not exist', (name) => `Make ${name('dir')}.`);
  expect(told(renamed({ dir: 'nvme.dir' }, error))).toMatchObject({
    message: 'nvme.dir is "dir", and dir/dir does not exist. Make nvme.dir.',
    field: 'nvme.dir',
  });
});

it('names are given again and again, and an error that names nothing of them is the same object', () => {
  const error = configError('warm', (name) => `is above ${name('hot')}`, 'Lower it.');
  const once = renamed((field) => `migration.${field}`, error);
  expect(told(once).message).toBe('migration.warm is above migration.hot. Lower it.');
  const twice = renamed({ 'migration.warm': '--warm' }, once);
  expect(told(twice)).toMatchObject({
    message: '--warm is above migration.hot. Lower it.',
    field: '--warm',
  });
  expect(renamed({ cold: '--cold' }, twice)).toBe(twice);
});

it('a file has the name that its writer knows, and the field of a line keeps its own', () => {
  const error = lineError('kept/stdin', 3, (name) => `rate is 0. Give ${name('rate')}.`, { field: 'rate' });
  expect(told(renamed({ 'kept/stdin': 'standard input', rate: '--rate' }, error))).toEqual({
    code: 'TKV_INPUT',
    message: 'standard input:3: rate is 0. Give --rate.',
    field: 'rate',
    path: 'standard input',
    line: 3,
  });
});

it('facts stay: the code, the path, and what was placed in a file', () => {
  const locked = namedError(
    'TKV_LOCKED',
    { field: 'dir', path: '/var/kv' },
    (name) => `${name('dir')} /var/kv is held.`,
  );
  expect(told(renamed({ dir: 'nvme.dir' }, locked))).toEqual({
    code: 'TKV_LOCKED',
    message: 'nvme.dir /var/kv is held.',
    field: 'nvme.dir',
    path: '/var/kv',
    line: undefined,
  });
  const placed = faultAt(
    configError('a', 'is 1', 'Give 2.'),
    { name: 'b', file: 'd.yaml', line: 4 },
    () => 'b',
  );
  expect(told(renamed({ 'd.yaml': 'other.yaml' }, placed)).message).toBe('other.yaml:4: b is 1. Give 2.');
});

it('a name of one letter gets no proposal', () => {
  expect(nearestName('3', ['1', '2'])).toBeUndefined();
  expect(nearestName('lri', ['lru', 'fifo'])).toBe('lru');
  expect(nearestName('1', ['11', '2'])).toBe('11');
});

it('dashes and underscores are the same to a mistyped name', () => {
  expect(nearestName('--rte', ['--rate', '--seed'])).toBe('--rate');
  expect(nearestName('max_num_sqs', ['max-num-seqs', 'rate'])).toBe('max-num-seqs');
});
