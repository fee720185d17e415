/** The first leg of a request keeps what its prompt depends on as the client wrote it, to the last digit. */

import { expect, it } from 'vitest';
import { prefillBody } from '../../src/serve/gateway/twoLegs.ts';

it('numbers that JavaScript would round stand as they were written', () => {
  const numbers = ['9223372036854775807', '-9007199254740993', '1e400', '0.1', '12345678901234567890'];
  for (const number of numbers) {
    const text = prefillBody(Buffer.from(`{"prompt":"a","seed":${number},"n":3}`), true).toString();
    expect(text).toContain(`"seed":${number},`);
    expect(text).toContain('"n":1,');
  }
});

it('a message has no number of choices', () => {
  const text = prefillBody(Buffer.from('{"messages":[],"max_tokens":9,"stream":true}'), false).toString();
  expect(JSON.parse(text)).toMatchObject({ messages: [], max_tokens: 1, stream: false });
  expect(text).not.toContain('"n"');
});
