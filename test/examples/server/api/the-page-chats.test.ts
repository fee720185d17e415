/** `chat.html`, served by the server, in a real browser. */

import { expect, it } from 'vitest';
import { LiveServer } from '../liveServer.ts';
import { BrowserPage } from './browserPage.ts';

const isHere = process.platform === 'linux' && process.arch === 'x64';
if (!isHere) console.log('SKIPPED: the page in Chromium (the package has it for Linux on x64)');

it.skipIf(!isHere)('a page chats: text comes in, the second turn is cached, and Stop cancels', async () => {
  await using server = await LiveServer.start({ hbmBytes: 2 ** 23, ddrBytes: 0 });
  await using page = await BrowserPage.open(server.url);
  await page.until('document.readyState === "complete" && document.getElementById("form") !== null');
  const say = async (text: string): Promise<void> => {
    await page.evaluate(
      `(by => { by('text').value = ${JSON.stringify(text)}; by('form').requestSubmit(); })` +
        '((id) => document.getElementById(id))',
    );
  };
  const isIdle = '!document.getElementById("send").disabled';
  const status = 'document.getElementById("status").textContent';
  const lines = (): Promise<string[]> =>
    page.evaluate('[...document.querySelectorAll("#messages p")].map((p) => p.className)');

  await say('Hello, how is the sea today, and what does the captain say about the northern light?');
  await page.until(`${isIdle} && ${status} !== ''`);
  expect(await lines()).toEqual(['user', 'assistant']);
  expect(await page.evaluate(status)).toMatch(/^0 of \d+ prompt tokens came from the cache; \d+ tokens/);

  await say('And the mountain?');
  await page.until(`${isIdle} && ${status} !== ''`);
  expect(await lines()).toEqual(['user', 'assistant', 'user', 'assistant']);
  const second = await page.evaluate<string>(status);
  expect(Number(/^(\d+) of/.exec(second)?.[1])).toBeGreaterThanOrEqual(16);

  const { engine } = server.serving;
  await say('A long one, please.');
  while (engine.size === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  await page.evaluate('document.getElementById("stop").click()');
  await page.until(isIdle);
  await server.idle();
  expect(engine.cache.kv.manager.inspect.openSequences).toBe(0);
});
