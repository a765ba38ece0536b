import type { PageModel } from '../src/admin/page/page-model.ts';
import { Moment } from './time.tsx';

/** What has changed, and what the log says: the last 50. */
export function Events({ model: { events } }: { readonly model: PageModel }) {
  return (
    <section aria-labelledby="events">
      <h2 id="events">Events</h2>
      {events.length === 0 && <p class="dim">Nothing has happened yet.</p>}
      {events.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-labelledby="events">
          <table class="events">
            <caption class="hidden">The last {events.length} changes and lines of the log</caption>
            <thead>
              <tr>
                <th scope="col">Time</th>
                <th scope="col">Event</th>
                <th scope="col">About</th>
              </tr>
            </thead>
            <tbody>
              {events.map((event, index) => (
                <tr key={`${event.at} ${index}`} class={event.level}>
                  <td class="when">
                    <Moment at={event.at} />
                  </td>
                  <td>
                    {event.level !== 'info' && (
                      <strong class={event.level === 'error' ? 'bad' : 'warn'}>{event.level} </strong>
                    )}
                    {event.revision > 0 && <span class="dim">#{event.revision} </span>}
                    {event.text}
                  </td>
                  <td class="mono dim">{event.detail}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
