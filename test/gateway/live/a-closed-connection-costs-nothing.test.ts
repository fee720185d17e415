import { expect, it } from 'vitest';
import { ask, echo, gatewayOf, TestBackend, textOf } from './backends.ts';

it('a connection that the backend closed while it was idle is opened anew, with one backend and no retry', async () => {
  await using a = await TestBackend.open((request, response, body) => {
    const { socket } = request;
    response.on('finish', () => {
      // closed as the next request comes in, and without a word before
      socket.removeAllListeners('data');
      socket.once('data', () => socket.resetAndDestroy());
      socket.resume();
    });
    echo(request, response, body);
  });
  await using gateway = await gatewayOf([a]);
  for (let i = 0; i < 5; i++) expect(await textOf(await ask(gateway, `p${i}`))).toBe(`echo p${i}`);
  expect(gateway.counts).toMatchObject({ completed: 5, retries: 0, failed: 0 });
  expect(gateway.pool.backends[0].counts.failures).toBe(0);
});
