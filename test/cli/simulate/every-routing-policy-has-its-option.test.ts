/** `--routing-policy` takes every routing policy by its name: parameters that the option adds are the policy's own. */

import { expect, it } from 'vitest';
import { routingPolicies } from '../../../src/sim/control/routing/routing.ts';
import { printed } from './printed.ts';

it.each([...routingPolicies.names])('%s', async (name) => {
  const text = await printed(
    ...[
      '--model',
      'qwen3-14b',
      '--rate',
      '20',
      '--num-requests',
      '10',
      '--num-instances',
      '2',
      '--routing-policy',
      name,
    ],
  );
  expect(text).toContain('10 of 10 requests completed');
});
