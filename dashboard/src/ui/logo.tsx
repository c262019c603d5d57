/** The mark of the page, as in favicon.svg. */
export function Logo() {
  return (
    <svg viewBox="0 0 32 32" width="24" height="24" aria-hidden="true">
      <rect width="32" height="32" rx="7" fill="#0b5fb8" />
      <g fill="none" stroke="#fff" strokeWidth="2.6" strokeLinecap="round">
        <path d="M5 12c3.7-4 7.3-4 11 0s7.3 4 11 0" />
        <path d="M5 20c3.7-4 7.3-4 11 0s7.3 4 11 0" opacity=".65" />
      </g>
    </svg>
  );
}
