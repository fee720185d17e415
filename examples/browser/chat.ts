/**
 * The page of both chats: it asks the worker that its `body` names, and shows what came from which tier and how long the
 * first token took.
 */

import type { ChatEnd, FromChat } from './chatWorker.ts';

const at = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;

const text = [
  'A server that answers questions about a long document reads it again for every question. ',
  'What it computes while reading is a cache of keys and values, and it depends on the document alone. ',
  'So it can be kept: in the memory of the GPU while it is in use, in the memory of the host when other ',
  'requests need the room, and on the disk for tomorrow. Each tier is slower and larger than the one above. ',
  'A block of sixteen tokens is named by a hash over itself and all that came before it, so the same words ',
  'have the same name, and a lookup finds the longest beginning that any tier has.\n\n',
].join('');
at<HTMLTextAreaElement>('document').value = text.repeat(3).trim();

//  Kept over reloads: the secret under which blocks are named, the runs, and how often the page was loaded.

const { worker: program = 'chatWorker.js', files = 'tierkv-chat' } = document.body.dataset;
const store = localStorage;
/** Each page has its own. */
const kept = (name: string): string => `${files}.${name}`;
const hex = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');

function secretKey(): Uint8Array {
  const known = store.getItem(kept('secret')) ?? hex(crypto.getRandomValues(new Uint8Array(32)));
  store.setItem(kept('secret'), known);
  return Uint8Array.from({ length: 32 }, (_, i) => Number.parseInt(known.slice(2 * i, 2 * i + 2), 16));
}

interface Run extends ChatEnd {
  readonly load: number;
  readonly answer: string;
}

const runs = JSON.parse(store.getItem(kept('runs')) ?? '[]') as Run[];
const load = Number(store.getItem(kept('loads')) ?? 0) + 1;
store.setItem(kept('loads'), String(load));

const BLOCK_TOKENS = 16;

function cell(content: string | HTMLElement, className = ''): HTMLTableCellElement {
  const made = document.createElement('td');
  made.className = className;
  made.append(content);
  return made;
}

function bar(parts: readonly (readonly [colour: string, share: number, title: string])[]): HTMLElement {
  const made = document.createElement('div');
  made.className = 'bar';
  for (const [colour, share, title] of parts) {
    const part = document.createElement('i');
    part.style.cssText = `width:${100 * share}%;background:var(--${colour})`;
    part.title = title;
    made.append(part);
  }
  return made;
}

function showRuns(): void {
  const slowest = Math.max(...runs.map(({ firstTokenMs }) => firstTokenMs), 1);
  const rows = runs.map((run) => {
    const row = document.createElement('tr');
    const { promptTokens, cachedTokens, firstTokenMs, found } = run;
    if ((found.nvme ?? 0) > 0) row.className = 'fromFiles';
    const tiers = Object.entries(found).map(([tier, blocks]) => {
      return [
        tier,
        (BLOCK_TOKENS * blocks) / promptTokens,
        `${BLOCK_TOKENS * blocks} tokens from ${tier}`,
      ] as const;
    });
    const computed = promptTokens - cachedTokens;
    const first = document.createElement('div');
    const value = document.createElement('span');
    value.className = 'ms';
    value.textContent = `${firstTokenMs.toFixed(0)} ms`;
    first.append(value, bar([['hbm', firstTokenMs / slowest, '']]));
    row.append(
      cell(String(run.load)),
      cell(`${promptTokens} tokens`),
      cell(`${cachedTokens} tokens`, 'found'),
      cell(bar([...tiers, ['computed', computed / promptTokens, `${computed} tokens computed`]])),
      cell(first),
      cell(run.answer.slice(0, 40), 'clip'),
    );
    row.dataset.tokens = run.tokens.join();
    row.dataset.files = String(found.nvme ?? 0);
    return row;
  });
  at('runs').replaceChildren(...rows.reverse());
}

//  The worker, and questions to it.

const worker = new Worker(program, { type: 'module' });
let ids = 0;
let answer = '';

function fail(problem: string): void {
  at('problem').hidden = false;
  at('problem').textContent = problem;
  at('state').textContent = 'stopped';
}

worker.addEventListener('error', ({ message }) => fail(`The engine cannot start: ${message}`));
worker.addEventListener('message', ({ data }: MessageEvent<FromChat>) => {
  if ('ready' in data) {
    const { tiers, device, restored, notices } = data.ready;
    at('state').textContent = 'ready';
    at('where').textContent =
      `Page load ${load}: tiers ${tiers.join(', ')}; kernels on ${device}; ${restored} blocks were found in the files. ` +
      notices.join(' ');
    at<HTMLButtonElement>('ask').disabled = false;
    document.body.dataset.ready = 'yes';
  } else if ('failed' in data) fail(data.failed);
  else if ('piece' in data) {
    answer += data.piece;
    at('answer').textContent = answer;
  } else {
    runs.push({ ...data.end, load, answer });
    store.setItem(kept('runs'), JSON.stringify(runs.slice(-20)));
    at('state').textContent =
      typeof data.end.saved === 'number' ? `${data.end.saved} blocks saved` : data.end.saved;
    at<HTMLButtonElement>('ask').disabled = false;
    showRuns();
    document.body.dataset.answered = String(data.id);
  }
});
worker.postMessage({ secretKey: secretKey(), device: new URLSearchParams(location.search).get('device') });

at('form').addEventListener('submit', (event) => {
  event.preventDefault();
  answer = '';
  at('answer').className = '';
  at('state').textContent = 'reading';
  at<HTMLButtonElement>('ask').disabled = true;
  const prompt = `${at<HTMLTextAreaElement>('document').value}\n\n${at<HTMLInputElement>('question').value}\n`;
  worker.postMessage({ id: ++ids, text: prompt, maxTokens: 24 });
});
at('reload').addEventListener('click', () => location.reload());
at('forget').addEventListener('click', async () => {
  worker.terminate();
  for (const name of ['secret', 'runs', 'loads']) store.removeItem(kept(name));
  const directory = await navigator.storage.getDirectory();
  await directory.removeEntry(files, { recursive: true }).catch(() => {});
  location.reload();
});

function setTheme(dark: boolean): void {
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  at('theme').textContent = dark ? 'Light' : 'Dark';
}
at('theme').addEventListener('click', () => setTheme(document.documentElement.dataset.theme !== 'dark'));
setTheme(matchMedia('(prefers-color-scheme: dark)').matches);
showRuns();
