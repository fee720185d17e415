/** A handle of a browser's file keeps that file from all others: it is closed where the file cannot be made ready. */

import { expect, it, vi } from 'vitest';
import { openOpfsFolder } from '../../src/adapters/browser/opfsFiles.ts';

it.each(['made', 'replaced'] as const)(
  'a file that is %s, and that the browser does not cut',
  async (how) => {
    let open = 0;
    let isFull = true;
    const handle = {
      truncate() {
        if (isFull) throw new DOMException('the quota is reached', 'QuotaExceededError');
      },
      getSize: () => 0,
      close: () => void open--,
    };
    const file = {
      async createSyncAccessHandle() {
        if (open++ > 0) throw new DOMException('another handle is open', 'NoModificationAllowedError');
        return handle;
      },
    };
    const directory = { getDirectoryHandle: async () => directory, getFileHandle: async () => file };
    vi.stubGlobal('navigator', { storage: { getDirectory: async () => directory } });
    const folder = await openOpfsFolder('kv');
    await expect(folder.open('tierkv.blocks', how)).rejects.toMatchObject({ code: 'ENOSPC' });
    expect(open).toBe(0);
    isFull = false;
    const opened = await folder.open('tierkv.blocks', how);
    expect(open).toBe(1);
    await opened.close();
    expect(open).toBe(0);
  },
);
