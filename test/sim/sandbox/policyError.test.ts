import { expect, it } from 'vitest';
import { PolicyError } from '../../../src/policy/sandbox/program.ts';
import { TierKVError } from '../../../src/runtime/index.ts';

it('an error of a policy is told from any other of this package, whichever copy made it', () => {
  const ours = new PolicyError('step_limit', 'too long', { line: 3 });
  expect(ours).toBeInstanceOf(PolicyError);
  expect(ours).toBeInstanceOf(TierKVError);
  const other = new TierKVError('TKV_INPUT', 'a bad trace');
  expect(other).toBeInstanceOf(TierKVError);
  expect(other instanceof PolicyError).toBe(false);
  const copy: object = Object.assign(new Error(ours.message), { isTierKVError: true, kind: ours.kind });
  expect(copy instanceof PolicyError).toBe(true);
});

it.each(['a\nb', 'a\r\nb', 'a\u2028b', 'a\u0085b', 'a\n\n\tb'])(
  'a message is one line, whatever the text in it holds: %j',
  (text) => {
    for (const error of [
      new PolicyError('policy_runtime', text, { requestId: text, line: 3 }),
      new TierKVError('TKV_INPUT', `x is ${text}. Mend it`),
    ]) {
      expect(error.message).toContain('a b');
    }
  },
);
